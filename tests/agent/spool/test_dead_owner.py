"""A process that dies at any moment leaves every batch it had appended, and nothing that is taken for one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.spool import SpoolHead, SpoolReader, SpoolWriter, spools
from rankscope.spool._frames import FRAME_HEAD, SEGMENT_HEAD
from tests.agent.spool.sources import NOW_NS, WHO, Source, assert_true_to, frames, own, spooled, writer
from tests.ground.processes import ROOT, wait_until


@pytest.fixture
def tail(tmp_path: Path) -> tuple[Source, Path, bytes]:
    """A closed spool of one segment, and its bytes."""
    source = Source(3)
    folder = spooled(tmp_path, source, 8)
    (path,) = folder.glob("*.seg")
    return source, path, path.read_bytes()


def test_all_whole_batches_are_there_wherever_the_file_is_cut(tail: tuple[Source, Path, bytes]) -> None:
    source, path, whole = tail
    ends = [len(whole)]
    reader = SpoolReader(path.parent)
    while ends[-1] > SEGMENT_HEAD:
        seq = 8 - len(ends)
        frame = reader.next(seq)
        assert frame is not None
        ends.append(ends[-1] - FRAME_HEAD - len(frame.payload))
    reader.close()
    ends.reverse()

    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        reader = SpoolReader(path.parent)
        damage = reader.recover()
        found = frames(reader)
        reader.close()

        expected = sum(1 for end in ends[1:] if end <= length)
        assert (length, damage, len(found)) == (length, [], expected)
        assert_true_to(source, found)
        assert path.stat().st_size in {0, *ends}


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"RKFR"])
def test_what_lies_behind_the_last_batch_is_cut_off(tail: tuple[Source, Path, bytes], filler: bytes) -> None:
    source, path, whole = tail
    path.write_bytes(whole + filler * 1_000)

    reader = SpoolReader(path.parent)

    assert reader.recover() == []
    assert [frame.seq for frame in frames(reader)] == list(range(8))
    assert_true_to(source, frames(reader))
    assert path.read_bytes() == whole
    kept = path.parent / "bad" / f"{path.stem}.tail"
    assert kept.exists() == (filler != b"\0")
    reader.close()


def test_the_bytes_of_another_spool_inside_a_batch_are_no_batches(tmp_path: Path) -> None:
    other = Source(1, who=replace(WHO, incarnation=b"o" * 16))
    foreign = next(spooled(tmp_path, other, 3).glob("*.seg")).read_bytes()
    source = Source(2)
    spool = writer(tmp_path)
    plain = [source.seal() for _ in range(3)]
    stuffed = replace(plain[1], payload=plain[1].payload + foreign)
    for batch in (plain[0], stuffed, plain[2]):
        assert spool.append(batch)
    spool.close()
    path = next(spool.folder.glob("*.seg"))
    data = bytearray(path.read_bytes())
    data[data.index(stuffed.payload)] ^= 1
    path.write_bytes(data)

    reader = SpoolReader(spool.folder)

    assert [(one.seq_from, one.seq_to) for one in reader.recover()] == [(1, 1)]
    assert [frame.seq for frame in frames(reader)] == [0, 2]
    reader.close()


@pytest.fixture
def appender(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that appends as fast as it can."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.agent.spool.appender", str(tmp_path), "3000"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_a_process_killed_while_it_appends_loses_nothing_that_it_had_appended(
    tmp_path: Path, appender: "subprocess.Popen[str]"
) -> None:
    assert appender.stdout is not None
    said = [appender.stdout.readline().split() for _ in range(300)]
    (folder,) = spools(tmp_path)
    reader = SpoolReader(folder)
    assert not reader.owner_is_gone
    assert reader.recover() == []

    os.kill(appender.pid, signal.SIGKILL)
    said += [line.split() for line in appender.stdout.read().splitlines() if len(line.split()) == 2]
    appender.wait()

    assert reader.owner_is_gone
    assert reader.recover() == []
    found = {str(frame.seq): frame.digest.hex() for frame in frames(reader)}
    assert {seq: found.get(seq) for seq, _ in said} == dict(said)
    assert len(found) <= len(said) + 1  # one may be in the spool and not said yet
    assert not reader.is_ended
    reader.close()


def test_a_zombie_is_gone(tmp_path: Path, appender: "subprocess.Popen[str]") -> None:
    assert appender.stdout is not None
    appender.stdout.readline()
    (folder,) = spools(tmp_path)
    reader = SpoolReader(folder)
    os.kill(appender.pid, signal.SIGKILL)

    # Nobody has waited for it: the process is in the table still.
    wait_until(lambda: reader.owner_is_gone, what="the owner seen as gone")
    reader.close()


def test_a_forked_child_that_outlives_the_owner_does_not_hold_its_spool(tmp_path: Path) -> None:
    program = """
        import os, sys, time
        from pathlib import Path
        from tests.agent.spool.sources import Source, own, writer
        source = Source(who=own())
        spool = writer(Path(sys.argv[1]), who=source.who)
        assert spool.append(source.seal())
        if os.fork() == 0:
            os.close(1)
            sys.stdin.read()
            os._exit(0)
        print(spool.folder, flush=True)
        os._exit(0)
    """
    lines = [line[8:] for line in program.splitlines()]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    folder = Path(process.stdout.read().strip())
    process.wait()

    reader = SpoolReader(folder)
    assert reader.owner_is_gone
    assert [frame.seq for frame in frames(reader)] == [0]
    reader.close()
    process.stdin.close()
    process.stdout.close()


def test_a_pid_that_is_used_again_is_not_the_owner(tmp_path: Path) -> None:
    head = replace(SpoolHead.of(own(), created_ns=NOW_NS), process_start=1)
    spool = SpoolWriter.create(tmp_path, head, max_bytes=2**20)

    reader = SpoolReader(spool.folder)

    assert reader.owner_is_gone
    reader.close()
    spool.close()


def test_what_a_process_left_that_died_while_it_made_its_spool_is_swept(tmp_path: Path) -> None:
    old, fresh, foreign = (tmp_path / name for name in (f".{'a' * 32}.7", f".{'b' * 32}.8", ".notes.9"))
    for folder in (old, fresh, foreign):
        folder.mkdir()
        (folder / "spool.json").write_text("{")
    os.utime(old, (0, 0))
    os.utime(foreign, (0, 0))

    writer(tmp_path).close()

    assert not old.exists()
    assert fresh.exists()
    assert foreign.exists()
    assert [folder.name for folder in spools(tmp_path)] == [WHO.incarnation.hex()]
