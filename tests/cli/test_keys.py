"""`rankscope keys`: a key is shown once, works at once and ends at once."""

from pathlib import Path

import pytest

from rankscope_proto.key_limits import KeyLimits
from rankscope_proto.keys import EVERY_PROJECT, KeyRing, Scope
from tests.cli.programs import rankscope


def test_a_made_key_is_one_of_the_file_with_its_scopes_and_projects(tmp_path: Path) -> None:
    limits = ("--max-seconds", "2.5", "--max-rows-read", "1000", "--max-memory", "2GiB", "--max-result-rows", "9")
    made = rankscope("keys", "create", "--project", "llm", "--project", "vision", *limits, "--json", home=tmp_path).json

    principal = KeyRing(tmp_path / "keys.json").principal(made["key"])
    assert principal is not None
    assert principal.projects == {"llm", "vision"}
    assert principal.scopes == {Scope.INGEST, Scope.READ}
    assert principal.limits == KeyLimits(2.5, 1000, 2**31, 9)
    assert made["limits"] == principal.limits.given()
    assert made["file"] == str(tmp_path / "keys.json")
    assert made["expires"] is None


def test_only_the_key_is_on_stdout(tmp_path: Path) -> None:
    made = rankscope("keys", "create", "--project", "*", "--scope", "admin", home=tmp_path)

    principal = KeyRing(tmp_path / "keys.json").principal(made.stdout.strip())
    assert principal is not None
    assert principal.sees(EVERY_PROJECT)
    assert "RANKSCOPE_KEY" in made.stderr
    assert made.stdout.strip() not in made.stderr


def test_the_list_has_no_key_and_says_which_are_over(tmp_path: Path) -> None:
    keys = [
        rankscope("keys", "create", "--project", "llm", *more, "--json", home=tmp_path).json
        for more in (["--name", "cluster"], ["--expires", "90d"])
    ]
    revoked = rankscope("keys", "revoke", keys[0]["id"], "--json", home=tmp_path).json

    listed = rankscope("keys", "ls", home=tmp_path).stdout
    items = rankscope("keys", "ls", "--json", home=tmp_path).json["items"]

    assert [(item["name"], item["state"]) for item in items] == [("cluster", "revoked"), ("", "valid")]
    assert items[0] == revoked
    assert items[1]["expires"] > items[1]["created"]
    assert not any(key["key"] in listed or key["key"][13:] in listed for key in keys)
    assert KeyRing(tmp_path / "keys.json").principal(keys[0]["key"]) is None


def test_an_unknown_key_cannot_be_revoked(tmp_path: Path) -> None:
    assert rankscope("keys", "revoke", "00000000", home=tmp_path).status == 3
    rankscope("keys", "create", "--project", "llm", home=tmp_path)
    assert rankscope("keys", "revoke", "00000000", home=tmp_path).status == 3


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        *(["--project", project] for project in ("", " ", "a/b", "..", "a\tb", "a" * 129)),
        ["--project", "llm", "--project", "a/b"],
        ["--project", "llm", "--expires", "soon"],
        ["--project", "llm", "--scope", "all"],
        *(["--project", "llm", *limit] for limit in (["--max-seconds", "-1"], ["--max-memory", "512kB"])),
    ],
)
def test_a_key_that_cannot_be_meant_is_a_wrong_call(wrong: list[str], tmp_path: Path) -> None:
    assert rankscope("keys", "create", *wrong, home=tmp_path).status == 2
    assert not (tmp_path / "keys.json").exists()


@pytest.mark.parametrize("command", [["ls"], ["revoke", "00000000"], ["create", "--project", "llm"]])
def test_a_damaged_file_is_told_and_kept(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{")

    answer = rankscope("keys", *command, home=tmp_path)

    assert answer.status == 1
    assert "keys.json is damaged" in answer.stderr
    assert (tmp_path / "keys.json").read_text() == "{"
