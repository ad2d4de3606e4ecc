"""One owner and one sender of a spool; a second is refused with a sentence, a dead one is no obstacle."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from rankscope.spool import FolderLock, Holder, SpoolError, SpoolHead, SpoolHeldError, SpoolReader, SpoolWriter
from tests.agent.spool.sources import NOW_NS, Source, own, spooled
from tests.ground.processes import ROOT


def without_locks(descriptor: int, operation: int) -> None:
    """A file system that knows no locks."""
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_a_second_sender_is_refused_and_reads_who_the_first_is(tmp_path: Path) -> None:
    folder = spooled(tmp_path, Source(), 1)
    first, second = SpoolReader(folder), SpoolReader(folder)
    first.hold()

    with pytest.raises(SpoolHeldError, match=f"process {os.getpid()} on {Holder.here().node}"):
        second.hold()

    assert second.next(0) is not None  # reading is no sending
    first.release()
    second.hold()
    second.close()
    first.close()


def test_a_second_owner_is_refused_also_under_another_boot_id(tmp_path: Path) -> None:
    head = SpoolHead.of(own(), created_ns=NOW_NS)
    spool = SpoolWriter.create(tmp_path, head, max_bytes=2**20)

    for second in (head, replace(head, boot_id="another", process_space="another")):
        with pytest.raises(SpoolHeldError, match="held by process"):
            SpoolWriter.create(tmp_path, second, max_bytes=2**20)
    spool.close()
    with pytest.raises(SpoolError, match="there already"):
        SpoolWriter.create(tmp_path, head, max_bytes=2**20)


def test_the_lock_of_another_process_holds_here_and_ends_with_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from rankscope.spool import FolderLock\n"
        "lock = FolderLock(Path(sys.argv[1])); lock.take(); print('held', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "sender.lock"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    lock = FolderLock(path)
    assert not lock.is_free()
    with pytest.raises(SpoolHeldError, match=f"process {process.pid} "):
        lock.take()

    process.kill()
    process.wait()

    assert lock.is_free()
    lock.take()
    lock.release()
    process.stdin.close()
    process.stdout.close()


def test_without_locks_a_file_stands_in_for_them(tmp_path: Path) -> None:
    path = tmp_path / "sender.lock"
    first, second = FolderLock(path, flock=without_locks), FolderLock(path, flock=without_locks)
    first.take()

    assert not second.is_free()
    with pytest.raises(SpoolHeldError, match=f"process {os.getpid()} on .* remove .*sender.lock.held"):
        second.take()

    first.release()
    assert second.is_free()
    second.take()
    second.release()
    assert not (tmp_path / "sender.lock.held").exists()


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({"node": "elsewhere"}, True),
        ({"boot_id": "an earlier boot"}, False),
        ({"pid": 2**22 - 3}, False),
        ({"process_start": 1}, False),
        ({}, True),
    ],
    ids=["another host", "an earlier boot", "a dead process", "a pid used again", "a living process"],
)
def test_a_file_that_stands_in_for_a_lock_holds_as_long_as_its_process(
    changes: dict[str, str | int], *, is_refused: bool, tmp_path: Path
) -> None:
    holder = asdict(Holder.here()) | changes
    (tmp_path / "sender.lock.held").write_text(json.dumps(holder))
    lock = FolderLock(tmp_path / "sender.lock", flock=without_locks)

    if is_refused:
        with pytest.raises(SpoolHeldError, match=str(holder["node"])):
            lock.take()
    else:
        lock.take()
        lock.release()


def test_a_stale_handle_is_an_answer_not_a_hang(tmp_path: Path) -> None:
    def stale(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(SpoolError, match="cannot be locked"):
        FolderLock(tmp_path / "sender.lock", flock=stale).take()


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "sender.lock")
    lock.take()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"1" if lock.is_held else b"0")
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)

    assert os.read(reading, 1) == b"0"
    assert lock.is_held
    os.close(reading)
    lock.release()
    assert lock.is_free()
