"""Who holds a data folder is known to the second one who wants it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rankscope.up import DataFolder, FolderHeldError, UpError
from tests.ground.processes import Child, alive, wait_until

HOLDER = """
import sys, time
from pathlib import Path
from rankscope.up import DataFolder
with DataFolder(Path(sys.argv[1])).held(reads=sys.argv[2] == "reads"):
    print("held", flush=True)
    time.sleep(600)
"""


def holder_of(folder: Path, logs: Path, *, reads: bool = False) -> Child:
    purpose = "reads" if reads else "serves"
    child = Child([sys.executable, "-c", HOLDER, str(folder), purpose], name="holder", folder=logs)
    wait_until(lambda: "held" in child.output(), what="the folder is held")
    return child


def test_a_folder_can_be_held_again_after_it_was_let_go(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)

    with folder.held():
        pass
    with folder.held():
        held = (tmp_path / "lock").read_text()

    assert held == f"{os.getpid()}\n"
    assert folder.holder() is None


def test_the_second_one_is_told_which_process_holds_the_folder(tmp_path: Path) -> None:
    child = holder_of(tmp_path, tmp_path)
    try:
        with pytest.raises(FolderHeldError) as refused, DataFolder(tmp_path).held():
            pass

        assert refused.value.pid == child.pid
        assert str(tmp_path) in str(refused.value)
        assert "RANKSCOPE_HOME" in refused.value.hint
    finally:
        child.stop()


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    child = holder_of(tmp_path, tmp_path)

    child.signal(9)
    child.wait()

    assert DataFolder(tmp_path).holder() is None
    with DataFolder(tmp_path).held():
        pass


def test_the_folder_and_those_in_it_are_for_this_user_only(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "deep" / "home")

    folder.prepare()

    assert {path.stat().st_mode & 0o777 for path in (folder.path, folder.store, folder.broker)} == {0o700}


@pytest.mark.parametrize(
    ("mode", "who"), [(0o777, "every user"), (0o1777, "every user"), (0o770, "its group"), (0o755, ""), (0o700, "")]
)
def test_a_folder_that_others_can_write_is_told_with_its_mode_and_the_remedy(
    mode: int, who: str, tmp_path: Path
) -> None:
    home = tmp_path / "a home"
    home.mkdir()
    home.chmod(mode)

    told = DataFolder(home).exposure()

    assert bool(told) is bool(who)
    if who:
        assert f"can be written by {who} (mode {mode:04o})" in told
        assert f"chmod go-w '{home}'" in told


def test_a_folder_that_is_not_there_is_written_by_nobody(tmp_path: Path) -> None:
    assert not DataFolder(tmp_path / "new").exposure()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UpError, match="cannot be made") as refused:
        DataFolder(tmp_path / "file" / "home").prepare()

    assert str(tmp_path / "file" / "home") in str(refused.value)


def test_the_socket_folder_is_short_the_same_each_time_and_removed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)

    with folder.socket_folder() as first:
        (first / "broker.sock").touch()
        mode = first.stat().st_mode & 0o777
    with folder.socket_folder() as second:
        pass

    assert first == second
    assert mode == 0o700
    assert len(str(first / "broker.sock")) < 108
    assert not first.exists()


def test_the_socket_folder_stays_short_where_tmpdir_is_long(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    program = (
        "from pathlib import Path; from rankscope.up import DataFolder\n"
        f"with DataFolder(Path({str(tmp_path)!r})).socket_folder() as folder: print(len(str(folder)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(long)},
    )

    assert int(done.stdout) < 90


def test_a_reader_is_waited_for(tmp_path: Path) -> None:
    child = holder_of(tmp_path, tmp_path, reads=True)
    ending = threading.Timer(0.5, child.stop)
    ending.start()
    try:
        with DataFolder(tmp_path).held():
            assert not alive(child.pid)
    finally:
        ending.join()
        child.stop()


def test_a_reader_that_does_not_end_is_named_and_a_server_advised(tmp_path: Path) -> None:
    child = holder_of(tmp_path, tmp_path, reads=True)
    try:
        with pytest.raises(FolderHeldError) as refused, DataFolder(tmp_path).held(patience_s=0.1):
            pass

        assert refused.value.pid == child.pid
        assert "rankscope up" in refused.value.hint
    finally:
        child.stop()


def test_a_log_is_for_this_user_only_even_where_an_older_one_was_not(tmp_path: Path) -> None:
    (tmp_path / "gateway.log").write_text("old")
    (tmp_path / "gateway.log").chmod(0o644)

    with DataFolder(tmp_path).open_log("gateway") as log:
        log.write(b"new")

    assert (tmp_path / "gateway.log").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "gateway.log").read_text() == "new"
