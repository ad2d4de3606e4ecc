"""API keys: what a valid one stands for, what is none, and how the file changes under a service that reads it."""

import json
import logging
import os
from multiprocessing import get_context
from pathlib import Path

import pytest

from rankscope_proto.key_limits import KeyLimits
from rankscope_proto.keys import EVERY_PROJECT, KeyFile, KeyFileError, KeyRing, Principal, Scope, bearer, masked

DAY_NS = 86_400 * 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "keys.json"


def read_key(path: Path) -> str:
    return KeyFile(path).create(["llm"], [Scope.READ])[0]


def test_a_made_key_stands_for_its_scopes_and_projects(path: Path) -> None:
    key, stored = KeyFile(path).create(["llm", "vision"], [Scope.INGEST, Scope.READ], name="cluster")

    principal = KeyRing(path).principal(key)

    assert principal is not None
    assert principal == Principal(stored.key_id, frozenset({Scope.INGEST, Scope.READ}), frozenset({"llm", "vision"}))
    assert principal.may(Scope.READ, "llm")
    assert not principal.may(Scope.READ, "speech")
    assert not principal.may(Scope.ADMIN)


def test_an_admin_key_may_all_within_its_projects(path: Path) -> None:
    principal = Principal("00000000", frozenset({Scope.ADMIN}), frozenset({"llm"}))

    assert all(principal.may(scope, "llm") for scope in Scope)
    assert not any(principal.may(scope, "vision") for scope in Scope)


def test_only_a_key_of_one_project_names_a_default() -> None:
    scopes = frozenset({Scope.READ})

    assert Principal("0", scopes, frozenset({"llm"})).only_project == "llm"
    assert Principal("0", scopes, frozenset({"llm", "vision"})).only_project is None
    assert Principal("0", scopes, frozenset({EVERY_PROJECT})).only_project is None
    assert Principal("0", scopes, frozenset({EVERY_PROJECT})).sees("any")


def test_the_file_holds_no_key_and_is_its_owners_alone(path: Path) -> None:
    key = read_key(path)

    assert key.split("_", 2)[2] not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "text", ["", "rsk_", "rsk_zzzzzzzz_" + "a" * 43, "Bearer", "rsk_00000000_" + "a" * 43, "\udcff", "é" * 60]
)
def test_what_was_never_made_is_no_key(path: Path, text: str) -> None:
    read_key(path)

    assert KeyRing(path).principal(text) is None
    assert KeyRing(path).principal(None) is None


def test_a_known_id_with_another_secret_is_no_key(path: Path) -> None:
    key = read_key(path)
    forged = key[:-1] + ("A" if key[-1] != "A" else "B")

    assert KeyRing(path).principal(forged) is None


def test_a_key_ends_when_it_expires(path: Path) -> None:
    now = [DAY_NS]
    key, _ = KeyFile(path, clock=lambda: now[0]).create(["llm"], [Scope.READ], lifetime_ns=DAY_NS)
    ring = KeyRing(path, clock=lambda: now[0])

    assert ring.principal(key) is not None
    now[0] = 2 * DAY_NS
    assert ring.principal(key) is None


def test_a_running_ring_sees_a_new_key_and_a_revoked_one(path: Path) -> None:
    first = read_key(path)
    ring = KeyRing(path)

    second, stored = KeyFile(path).create(["vision"], [Scope.READ])
    assert ring.principal(second) is not None
    revoked = KeyFile(path).revoke(stored.key_id)

    assert revoked is not None
    assert revoked.revoked_ns is not None
    assert ring.principal(second) is None
    assert ring.principal(first) is not None
    assert KeyFile(path).revoke(stored.key_id) == revoked
    assert KeyFile(path).revoke("ffffffff") is None


def test_a_damaged_change_keeps_the_last_good_keys_and_says_so_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = read_key(path)
    ring = KeyRing(path)
    good = path.read_text()

    path.write_text("{")
    with caplog.at_level(logging.ERROR):
        answers = [ring.principal(key) for _ in range(3)]
    assert all(answers)
    assert len(caplog.records) == 1
    path.unlink()
    assert ring.principal(key) is not None

    path.write_text(json.dumps({**json.loads(good), "keys": []}))
    path.chmod(0o600)
    assert ring.principal(key) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "keys": []}',
        '{"version": 1, "keys": [{}]}',
        '{"version": 1, "keys": 3}',
        "nul\x00",
    ],
)
def test_a_ring_does_not_start_on_a_damaged_file(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o600)

    with pytest.raises(KeyFileError, match=r"keys\.json is damaged"):
        KeyRing(path)


def test_a_ring_does_not_start_without_a_file_nor_on_one_that_others_may_write(path: Path) -> None:
    with pytest.raises(KeyFileError, match="rankscope keys create"):
        KeyRing(path)
    read_key(path)
    path.chmod(0o666)
    with pytest.raises(KeyFileError, match="chmod go-w"):
        KeyRing(path)


def test_who_could_read_the_file_can_read_it_after_a_change(path: Path, tmp_path: Path) -> None:
    read_key(path)
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)

    key = read_key(link)

    assert path.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert KeyRing(path).principal(key) is not None


def test_a_key_needs_a_project_and_a_scope(path: Path) -> None:
    for projects, scopes in (([], [Scope.READ]), ([" "], [Scope.READ]), (["llm"], [])):
        with pytest.raises(ValueError, match="needs a project"):
            KeyFile(path).create(projects, scopes)
    assert KeyFile(path).keys() == []


def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(KeyFileError, match="cannot be written"):
        KeyFile(tmp_path / "file" / "keys.json").create(["llm"], [Scope.READ])


def _make(path: str, count: int) -> None:
    for _ in range(count):
        KeyFile(Path(path)).create(["llm"], [Scope.READ])


def test_two_processes_that_make_keys_lose_none(path: Path) -> None:
    context = get_context("spawn")
    makers = [context.Process(target=_make, args=(os.fspath(path), 5)) for _ in range(2)]

    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(30)

    assert [maker.exitcode for maker in makers] == [0, 0]
    assert len(KeyFile(path).keys()) == 10


def test_the_list_shows_the_oldest_first_and_no_digest(path: Path) -> None:
    times = iter([2 * DAY_NS, DAY_NS])
    file = KeyFile(path, clock=lambda: next(times))
    file.create(["llm"], [Scope.READ], name="later")
    file.create(["llm"], [Scope.READ], name="earlier")

    keys = file.keys()

    assert [stored.name for stored in keys] == ["earlier", "later"]
    assert keys[0].digest not in repr(keys)


def test_a_bearer_value_gives_its_key_and_nothing_else_does() -> None:
    assert bearer("Bearer abc") == bearer("bearer  abc ") == "abc"
    assert [bearer(value) for value in (None, "", "Bearer", "Bearer ", "Basic abc", "abc")] == [None] * 6


def test_a_masked_key_shows_its_public_half(path: Path) -> None:
    key = read_key(path)

    assert masked(key) == f"{key[:13]}***"
    assert masked("secret") == "***"
    assert masked(None) == "none"


def test_a_key_brings_the_limits_it_was_made_with_and_one_of_an_older_file_has_none(path: Path) -> None:
    limits = KeyLimits(seconds=0.5, rows_read=10**9)
    key, _ = KeyFile(path).create(["llm"], [Scope.READ], limits=limits)
    made = KeyRing(path).principal(key)
    document = json.loads(path.read_text())
    del document["keys"][0]["limits"]
    path.write_text(json.dumps(document))
    older = KeyRing(path).principal(key)

    assert made is not None
    assert older is not None
    assert (made.limits, older.limits) == (limits, KeyLimits())


@pytest.mark.parametrize(
    "limits", [{"rows": 5}, {"rows_read": 0}, {"seconds": "1"}, {"result_rows": True}, {"seconds": -1}]
)
def test_a_limit_that_is_not_understood_makes_no_key_wider(limits: dict[str, object], path: Path) -> None:
    read_key(path)
    document = json.loads(path.read_text())
    document["keys"][0]["limits"] = limits
    path.write_text(json.dumps(document))

    with pytest.raises(KeyFileError, match="is damaged"):
        KeyRing(path)
