"""A disk that is full, read-only or fails: an answer, never an exception; the reserve takes gaps; it goes on after."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.spool import SpoolError, SpoolReader, SpoolWriter
from rankscope_proto import failpoints
from tests.agent.spool.sources import Source, assert_true_to, frames, own, writer

DISK_BYTES = 8 * 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system is not allowed here: a full disk cannot be shown")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def filled(disk: Path, *, but: int = 0) -> Path:
    """A file that takes what is free, but for so many bytes."""
    ballast = disk / "ballast"
    free = shutil.disk_usage(disk).free - but
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free))
    return ballast


def spool_on(disk: Path, source: Source) -> SpoolWriter:
    """A spool that the disk bounds, not a setting."""
    spool = writer(disk / "spool", who=source.who)
    for _ in range(3):
        assert spool.append(source.seal(2_000))
    return spool


def test_a_full_disk_refuses_what_is_usual_and_takes_what_is_urgent(disk: Path) -> None:
    source = Source(who=own())
    spool = spool_on(disk, source)
    ballast = filled(disk)
    refused = source.seal(20_000)

    assert not spool.append(refused)
    assert spool.fullness == 1.0
    assert shutil.disk_usage(disk).free == 0
    for _ in range(10):
        assert spool.append(source.seal(3_000), urgent=True)
        assert not spool.append(source.seal(20_000))
    spool.sync()

    ballast.unlink()
    for _ in range(10):
        assert spool.append(source.seal(20_000))
    spool.sync()
    assert spool.fullness < 0.5
    assert (spool.folder / "reserve").stat().st_blocks * 512 >= 1024 * 1024
    spool.close()
    reader = SpoolReader(spool.folder)
    read = frames(reader)
    assert_true_to(source, read)
    assert [frame.seq for frame in read] == [0, 1, 2, *range(4, 24, 2), *range(24, 34)]
    assert reader.recover() == []
    reader.close()


def test_a_disk_with_room_for_half_a_batch_takes_nothing_of_it(disk: Path) -> None:
    source = Source(who=own())
    spool = spool_on(disk, source)
    (segment,) = spool.folder.glob("*.seg")
    filled(disk, but=8_192)
    before = segment.stat().st_size

    assert not spool.append(source.seal(60_000))

    assert segment.stat().st_size == before
    assert [path.name for path in spool.folder.glob("*.seg")] == [segment.name]
    reader = SpoolReader(spool.folder)
    assert [frame.seq for frame in frames(reader)] == [0, 1, 2]
    assert reader.next(3) is None
    assert spool.append(source.seal(1_000))  # the half was given back
    assert reader.next(3) is not None
    reader.close()
    spool.close()


def test_a_reader_follows_through_the_reserve_and_out_of_it(disk: Path) -> None:
    source = Source(who=own())
    spool = spool_on(disk, source)
    reader = SpoolReader(spool.folder)
    ballast = filled(disk)
    for is_full in (True, True, False, False):
        if not is_full:
            ballast.unlink(missing_ok=True)
        batch = source.seal(9_000)
        assert spool.append(batch, urgent=True)
        frame = reader.next(batch.seq)
        assert frame is not None
        assert frame.digest == batch.digest
        assert reader.next(batch.seq + 1) is None
    reader.close()
    spool.close()


def test_an_owner_killed_in_the_reserve_leaves_what_it_had_appended(disk: Path) -> None:
    source = Source(who=own())
    spool = spool_on(disk, source)
    filled(disk)
    assert spool.append(source.seal(5_000), urgent=True)
    copy = disk.parent / "copy" / spool.folder.name
    shutil.copytree(spool.folder, copy)  # as a killed process leaves it: the rest of the reserve is zeros
    (copy / "owner.lock").unlink()
    text = (copy / "spool.json").read_text()
    (copy / "spool.json").write_text(text.replace('"process_space": "', '"process_space": "another '))

    reader = SpoolReader(copy)

    assert reader.recover() == []
    assert [frame.seq for frame in frames(reader)] == [0, 1, 2, 3]
    assert not (copy / "bad").exists()
    assert max(path.stat().st_size for path in copy.glob("*.seg")) < 20_000
    reader.close()
    spool.close()


def test_what_is_larger_than_the_reserve_is_refused_and_leaves_it_whole(disk: Path) -> None:
    source = Source(who=own())
    spool = spool_on(disk, source)
    filled(disk)

    assert not spool.append(source.seal(1_200_000), urgent=True)
    assert (spool.folder / "reserve").stat().st_size == 1024 * 1024
    assert spool.append(source.seal(100), urgent=True)
    spool.close()


def test_a_spool_can_not_be_made_on_a_full_disk_and_says_so(disk: Path) -> None:
    filled(disk)

    with pytest.raises(SpoolError, match="No space left"):
        writer(disk / "spool", who=own())


def test_a_disk_that_becomes_read_only_is_an_answer(disk: Path) -> None:
    source = Source(who=own())
    spool = spool_on(disk, source)
    reader = SpoolReader(spool.folder)
    subprocess.run(["umount", "-l", str(disk)], check=True)  # under the writer: its files stay, new ones cannot be
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=4k", "tmpfs", str(disk)], check=True)

    spool.sync()
    assert not spool.append(source.seal())
    assert not spool.append(source.seal(), urgent=True)
    assert spool.fullness == 1.0
    reader.note_standing(2, 1)
    assert reader.free_below(1) == 0
    reader.close()
    spool.close()


@pytest.mark.parametrize("point", ["spool.append", "spool.rotate"])
def test_an_error_of_the_disk_is_an_answer_and_the_next_append_is_as_if_it_had_not_been(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(who=own())
    spool = writer(tmp_path, who=source.who)
    batch = source.seal()
    monkeypatch.setattr(failpoints, "_points", failpoints.parse(f"{point}:fail@1"))

    assert not spool.append(batch)
    assert spool.fullness == 1.0
    assert spool.append(batch)
    assert spool.fullness < 0.1
    reader = SpoolReader(spool.folder)
    assert [frame.seq for frame in frames(reader)] == [0]
    reader.close()
    spool.close()


def test_a_disk_that_fails_behind_the_append_has_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(who=own())
    spool = writer(tmp_path, who=source.who)
    monkeypatch.setattr(failpoints, "_points", failpoints.parse("spool.after_write:fail"))

    assert spool.append(source.seal())

    assert spool.next_seq == 1
    spool.close()


def test_a_folder_removed_under_a_living_owner_is_made_again(tmp_path: Path) -> None:
    source = Source(who=own())
    spool = writer(tmp_path, who=source.who)
    assert spool.append(source.seal())
    shutil.rmtree(spool.folder)
    spool.sync()

    assert spool.append(source.seal())

    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    reader = SpoolReader(spool.folder)
    assert not reader.owner_is_gone
    assert [(one.seq_from, one.seq_to) for one in reader.recover()] == [(0, 0)]
    spool.close()
    assert reader.owner_is_gone
    reader.close()
