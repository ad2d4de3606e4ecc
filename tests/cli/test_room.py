"""What `rankscope doctor` says of room: the store's tables and disk, the spools that wait."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rankscope import _spooling
from rankscope.cli._health import environment_report
from rankscope.cli._storage import sized, storage_lines
from rankscope.up import DataFolder
from tests.cli.programs import rankscope
from tests.ground.stacks import Stack, clean_environ

TABLE = {"table": "spans", "rows": 7, "bytes": 3 * 2**30, "bytes_per_day": 2.0**30, "retention_days": 30}
STORAGE: dict[str, Any] = {
    "bytes": 3 * 2**30,
    "bytes_per_day": 2.0**30,
    "free_bytes": 10 * 2**30,
    "full_in_days": 10.0,
    "tables": [TABLE, {**TABLE, "table": "gaps", "rows": 0}],
}
OFFLINE = """
import rankscope
run = rankscope.init(run_id="waits", quiet=True)
with run.trace("work"):
    pass
run.finish()
"""


def test_a_disk_that_is_soon_full_is_said() -> None:
    head, names, row = storage_lines(STORAGE)

    assert "3 GiB, grows by 1 GiB a day; 10 GiB free, full in 10 days: a shorter retention" in head
    assert names.split() == ["table", "rows", "size", "a", "day", "kept"]
    assert row.split() == ["spans", "7", "3", "GiB", "1", "GiB", "30", "days"]


@pytest.mark.parametrize(("days", "words"), [(None, "which lasts"), (400.0, "full in 400 days")])
def test_a_disk_that_lasts_is_said_too(days: float | None, words: str) -> None:
    assert storage_lines({**STORAGE, "full_in_days": days})[0].endswith(words)


def test_where_no_service_tells_nothing_is_said() -> None:
    assert storage_lines(None) == []


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (5.5 * 2**20, "5.5 MiB"), (2**41, "2 TiB")]
)
def test_sizes_are_in_the_unit_that_reads_best(count: float, words: str) -> None:
    assert sized(count) == words


def test_doctor_tells_the_stores_room(stack: Stack) -> None:
    storage = rankscope("doctor", "--json", home=stack.home).json["environment"]["storage"]

    assert {table["table"] for table in storage["tables"]} >= {"spans", "batches", "trace_index"}
    assert storage["free_bytes"] > 0


def test_doctor_tells_of_spools_that_wait(tmp_path: Path) -> None:
    environ = clean_environ(RANKSCOPE_HOME=str(tmp_path), RANKSCOPE_AGENT="none")
    none = rankscope("doctor", "--json", home=tmp_path).json["environment"]["spools"]
    subprocess.run([sys.executable, "-c", OFFLINE], check=True, env=environ, capture_output=True, timeout=60)

    waiting = rankscope("doctor", "--json", home=tmp_path).json["environment"]["spools"]
    said = rankscope("doctor", home=tmp_path).stdout

    assert (none["waiting"], none["bytes"]) == (0, 0)
    assert (waiting["waiting"], waiting["path"]) == (1, str(tmp_path / "spool"))
    assert waiting["bytes"] > 0
    assert "spools     1 spool with " in said


def test_doctor_looks_where_ranks_put_their_spools_when_the_home_is_on_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, mounts = tmp_path / "home", tmp_path / "mounts"
    home.mkdir()
    mounts.write_text(f"1 0 0:1 / / rw - ext4 disk rw\n2 1 0:2 / {home} rw - nfs4 server:/home rw\n")
    monkeypatch.setattr(_spooling, "MOUNTS", mounts)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    spools = environment_report(DataFolder(home), None)["spools"]

    assert spools["path"] == str(tmp_path / f"rankscope-{os.getuid()}" / "spool")
    assert spools["waiting"] == 0


def test_doctor_fails_where_no_spool_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    answer = rankscope("doctor", "--json", home=tmp_path, environ={"RANKSCOPE_SPOOL": str(tmp_path / "file")})

    assert answer.status == 1
    assert "no spool can be made" in answer.json["environment"]["spools"]["problem"]


def test_doctor_makes_no_folder(tmp_path: Path) -> None:
    rankscope("doctor", home=tmp_path / "new")

    assert not (tmp_path / "new").exists()
