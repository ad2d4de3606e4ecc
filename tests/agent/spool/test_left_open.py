"""What a process leaves open lies beside its batches: the last of it, whole, and only where it died."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope._block import Block
from rankscope._export import SealedBatch
from rankscope._identity import Identity
from rankscope._seal import Sealer
from rankscope.spool import SpoolReader, SpoolWriter, _writer, stage_out
from rankscope.testing import ManualClock, rows_of
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.spool.sources import WHO, Source, own, spooled, writer


def open_now(*span_ids: int, seq: int = 0, who: Identity = WHO) -> SealedBatch:
    """The rows of spans that are open when the next batch is `seq`."""
    sealer = Sealer(who, clock=ManualClock())
    count = len(span_ids)
    columns = {"span_id": span_ids, "name": ["open"] * count, "start": [1] * count, "duration": [2] * count}
    sealer.add(Block("spans", count, columns))
    batch = sealer.seal()
    assert batch is not None
    return SealedBatch(
        batch.payload, batch.incarnation, seq, batch.digest, rows=batch.rows, week=batch.week, counts=batch.counts
    )


def left_in(folder: Path) -> list[object] | None:
    """Ids of the spans that lie there; None: nothing does."""
    reader = SpoolReader(folder)
    try:
        left = reader.left_open()
        return None if left is None else [row["span_id"] for row in rows_of(Batch.FromString(left.payload), "spans")]
    finally:
        reader.close()


@pytest.fixture
def spool(tmp_path: Path) -> SpoolWriter:
    """A spool with two batches, whose process goes on."""
    made, source = writer(tmp_path), Source()
    for _ in range(2):
        assert made.append(source.seal())
    return made


def test_only_the_last_of_it_is_kept(spool: SpoolWriter) -> None:
    spool.leave_open(open_now(1, 2))
    spool.leave_open(open_now(2, 3))

    assert left_in(spool.folder) == [2, 3]
    spool.leave_open(None)
    assert left_in(spool.folder) is None
    assert not list(spool.folder.glob("*left_open*"))


def test_a_process_that_ends_in_order_leaves_none(tmp_path: Path) -> None:
    source = Source()
    spool = writer(tmp_path)
    assert spool.append(source.seal())
    spool.leave_open(open_now(1))

    assert spool.append(source.seal(), is_last=True)

    assert not (spool.folder / "left_open").exists()
    spool.close()


def test_what_lies_there_behind_the_last_word_is_of_no_account(tmp_path: Path) -> None:
    folder = spooled(tmp_path, Source(), 2)
    (folder / "left_open").write_bytes(b"of a process that was killed before it took the file away")

    assert left_in(folder) is None


@pytest.mark.parametrize("cut", [0, 1, 30, 100, -1])
def test_a_file_that_is_cut_or_damaged_says_nothing(spool: SpoolWriter, cut: int) -> None:
    spool.leave_open(open_now(1, 2))
    path = spool.folder / "left_open"
    whole = path.read_bytes()

    path.write_bytes(whole[:cut])
    assert left_in(spool.folder) is None

    path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    assert left_in(spool.folder) is None


def test_a_disk_that_takes_no_file_leaves_none_rather_than_an_old_one(
    spool: SpoolWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.leave_open(open_now(1))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rankscope.spool._left_open.write_whole", full)
    spool.leave_open(open_now(2))

    assert left_in(spool.folder) is None


def dead() -> int:
    """The id of a process that is gone."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    return gone.pid


def many_segments(root: Path, monkeypatch: pytest.MonkeyPatch, who: Identity) -> SpoolWriter:
    """A spool of one batch a segment."""
    monkeypatch.setattr(_writer, "SEGMENT_BYTES", 1)
    monkeypatch.setattr(_writer, "MIN_SEGMENT_BYTES", 1)
    source = Source(who=who)
    spool = writer(root, who=who)
    for _ in range(8):
        assert spool.append(source.seal())
    assert len(list(spool.folder.glob("*.seg"))) == 8
    return spool


def test_batches_that_tell_which_spans_ended_stay_where_the_process_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = Identity("p", "r", b"l" * 16, os.urandom(16), rank=0, node="n", pid=dead())
    spool = many_segments(tmp_path, monkeypatch, who)
    spool.leave_open(open_now(1, seq=3, who=who))
    reader = SpoolReader(spool.folder)

    freed = reader.free_below(8)

    assert freed == 3
    assert reader.base == 3
    reader.close()
    spool.close()


def test_the_batches_of_a_process_that_lives_are_freed_whatever_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = own()
    spool = many_segments(tmp_path, monkeypatch, who)
    spool.leave_open(open_now(1, seq=3, who=who))
    reader = SpoolReader(spool.folder)

    assert reader.free_below(8) == 7
    reader.close()
    spool.close()


def test_it_goes_with_a_copy_of_a_dead_spool_and_not_with_that_of_a_living_one(tmp_path: Path) -> None:
    for who, expected in ((own(), None), (Identity("p", "r", b"l" * 16, os.urandom(16), node="n", pid=dead()), [7])):
        source = Source(who=who)
        spool = writer(tmp_path / "spool", who=who)
        assert spool.append(source.seal())
        spool.leave_open(open_now(7, who=who))
        places = stage_out(tmp_path / "spool", tmp_path / "shared")
        (place,) = [place for place in places if place.name.endswith(who.incarnation.hex())]

        assert left_in(place) == expected
        spool.close()
