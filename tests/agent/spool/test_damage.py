"""Whatever the disk does to the files: the spool starts, damaged batches are counted exactly, the others are whole."""

import errno
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.spool import Damage, SpoolReader, _evidence, _segments, _writer, spools
from rankscope.spool._frames import FRAME_HEAD, SEGMENT_HEAD
from tests.agent.spool.sources import Source, assert_true_to, frames, spooled

COUNT = 16
FLIPS = 3_000


class Specimen:
    """A closed spool of several small segments, and where each batch lies in it."""

    def __init__(self, root: Path) -> None:
        self.source = Source(7)
        self.folder = spooled(root, self.source, COUNT)
        self.paths = sorted(self.folder.glob("*.seg"))
        self.bytes = {path: path.read_bytes() for path in self.paths}
        self.places: dict[int, tuple[Path, range]] = {}
        firsts = [*(int(path.stem) for path in self.paths), COUNT]
        for path, first, behind in zip(self.paths, firsts, firsts[1:], strict=False):
            offset = SEGMENT_HEAD
            for seq in range(first, behind):
                end = offset + FRAME_HEAD + len(self.source.batches[seq].payload)
                self.places[seq] = (path, range(offset, end))
                offset = end

    def restore(self) -> None:
        """Puts every file back as it was written."""
        for path, data in self.bytes.items():
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)

    def flip(self, path: Path, offset: int, mask: int) -> None:
        """Changes one byte."""
        with path.open("r+b") as file:
            file.seek(offset)
            old = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([old ^ mask]))

    def seq_at(self, path: Path, offset: int) -> int | None:
        """The batch that a byte belongs to; None: the segment's header."""
        hits = [seq for seq, (held, place) in self.places.items() if held == path and offset in place]
        return hits[0] if hits else None

    def assert_lost(self, lost: Iterable[int]) -> None:
        """Recovery declares exactly these batches, with exact rows; all others are read as they were."""
        missing = sorted(lost)
        tail = COUNT
        while tail - 1 in missing:  # nothing behind them tells how many there were
            tail -= 1
        reader = SpoolReader(self.folder)
        found = reader.recover()
        read = frames(reader)
        reader.close()

        assert [(one.seq_from, one.seq_to) for one in found] == runs([seq for seq in missing if seq < tail])
        for one in found:
            assert Counter(one.rows_by_section) == self.source.gone(range(one.seq_from, one.seq_to + 1)), one
        assert [frame.seq for frame in read] == [seq for seq in range(COUNT) if seq not in missing]
        assert_true_to(self.source, read)


def runs(seqs: list[int]) -> list[tuple[int, int]]:
    """Contiguous ranges of ascending numbers."""
    ranges = ([seq for _, seq in group] for _, group in groupby(enumerate(seqs), key=lambda pair: pair[1] - pair[0]))
    return [(found[0], found[-1]) for found in ranges]


@pytest.fixture
def specimen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Specimen:
    monkeypatch.setattr(_writer, "SEGMENT_BYTES", 1_024)
    monkeypatch.setattr(_writer, "MIN_SEGMENT_BYTES", 1_024)
    made = Specimen(tmp_path)
    assert len(made.paths) >= 3
    return made


def test_a_flipped_byte_anywhere_costs_its_own_batch_and_no_other(specimen: Specimen) -> None:
    everywhere = [(path, offset) for path, data in specimen.bytes.items() for offset in range(len(data))]
    chosen = random.Random(1)
    assert len(everywhere) >= FLIPS
    for path, offset in everywhere:
        specimen.flip(path, offset, chosen.randrange(1, 256))
        seq = specimen.seq_at(path, offset)
        specimen.assert_lost([] if seq is None else [seq])
        path.write_bytes(specimen.bytes[path])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_several_places_is_declared_exactly(specimen: Specimen, data: st.DataObject) -> None:
    specimen.restore()
    lost: set[int] = set()
    for _ in range(data.draw(st.integers(1, 6))):
        path = data.draw(st.sampled_from(specimen.paths))
        offset = data.draw(st.integers(0, len(specimen.bytes[path]) - 1))
        garbage = data.draw(st.binary(min_size=1, max_size=40))[: len(specimen.bytes[path]) - offset]
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(garbage)
    for seq, (path, place) in specimen.places.items():
        if path.read_bytes()[place.start : place.stop] != specimen.bytes[path][place.start : place.stop]:
            lost.add(seq)

    specimen.assert_lost(lost)


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_that_vanished_is_declared_with_all_its_batches(specimen: Specimen, number: int) -> None:
    path = specimen.paths[number]
    path.unlink()

    specimen.assert_lost(seq for seq, (held, _) in specimen.places.items() if held == path)


def test_bytes_that_went_missing_inside_a_segment_cost_the_batches_they_were_of(specimen: Specimen) -> None:
    path = specimen.paths[1]
    seq = min(seq for seq, (held, _) in specimen.places.items() if held == path)
    middle = specimen.places[seq][1].start + 50
    path.write_bytes(specimen.bytes[path][:middle] + specimen.bytes[path][middle + 8 :])

    specimen.assert_lost([seq])


def test_a_place_that_the_disk_cannot_read_costs_the_batches_it_holds(
    specimen: Specimen, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, place = specimen.places[5]
    read = os.pread
    monkeypatch.setattr(_segments, "PAGE", 16)
    monkeypatch.setattr(_segments, "FAILING_S", 0.0)

    def failing(descriptor: int, length: int, offset: int, /) -> bytes:
        is_there = os.path.samestat(os.fstat(descriptor), path.stat())
        if is_there and offset < place.stop - 20 and offset + length > place.start + 80:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", failing)

    specimen.assert_lost([5])


def test_a_segment_of_zeros_is_declared_with_all_its_batches(specimen: Specimen) -> None:
    path = specimen.paths[1]
    path.write_bytes(bytes(len(specimen.bytes[path])))

    specimen.assert_lost(seq for seq, (held, _) in specimen.places.items() if held == path)


def test_a_file_that_is_no_segment_at_all_costs_nothing(specimen: Specimen) -> None:
    (specimen.folder / "notes.seg").write_text("not ours")
    (specimen.folder / "00000000000000000003.tmp").write_bytes(b"\0" * 100)
    (specimen.folder / f"{COUNT:020d}.seg").write_bytes(b"")

    specimen.assert_lost([])


def test_what_vanished_above_the_durable_seq_is_counted_from_it(specimen: Specimen) -> None:
    inside = int(specimen.paths[1].stem) + 1
    reader = SpoolReader(specimen.folder)
    assert len(frames(reader)) == COUNT
    assert reader.next(inside) is not None
    reader.note_standing(COUNT, inside)
    reader.free_below(inside)
    reader.close()
    specimen.paths[1].unlink()

    again = SpoolReader(specimen.folder)
    found = again.recover()
    again.close()

    lost = range(inside, int(specimen.paths[2].stem))
    assert [(one.seq_from, one.seq_to) for one in found] == [(lost[0], lost[-1])]
    assert Counter(found[0].rows_by_section) == specimen.source.gone(lost)


def test_damage_below_the_durable_seq_is_nobodys_loss(specimen: Specimen) -> None:
    reader = SpoolReader(specimen.folder)
    assert reader.next(4) is not None
    reader.note_standing(5, 5)
    reader.close()
    path, place = specimen.places[2]
    specimen.flip(path, place.start + 60, 1)

    again = SpoolReader(specimen.folder)

    assert again.recover() == []
    again.close()


def test_a_hole_is_reported_again_as_long_as_its_neighbours_lie_there(specimen: Specimen) -> None:
    path, place = specimen.places[4]
    specimen.flip(path, place.start + 60, 1)
    reader = SpoolReader(specimen.folder)

    first, second = reader.recover(), reader.recover()

    assert first == second
    assert [one.seq_from for one in first] == [4]
    assert isinstance(first[0], Damage)
    assert path.name in first[0].detail
    reader.close()


def test_a_damaged_segment_is_kept_aside_when_it_is_freed_and_outlives_the_spool(specimen: Specimen) -> None:
    path, place = specimen.places[2]
    specimen.flip(path, place.start + 60, 1)
    reader = SpoolReader(specimen.folder)
    reader.recover()
    reader.note_standing(COUNT, COUNT)

    assert reader.free_below(COUNT) >= 2
    assert reader.remove()

    assert not specimen.folder.exists()
    assert (specimen.folder.parent / "bad" / specimen.folder.name / path.name).exists()


def test_what_is_kept_of_spools_that_are_gone_is_bounded_and_the_oldest_makes_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_evidence, "MAX_ROOT_BYTES", 2_500)
    for number in range(4):
        folder = tmp_path / f"spool{number}"
        folder.mkdir()
        assert _evidence.keep(folder, "0.batch", data=bytes(1_000))
        os.utime(folder / "bad", ns=(number, number))

        _evidence.outlive(folder)

    assert sorted(path.name for path in (tmp_path / "bad").iterdir()) == ["spool2", "spool3"]


def test_a_batch_set_aside_is_kept_with_the_reason(specimen: Specimen) -> None:
    reader = SpoolReader(specimen.folder)
    frame = reader.next(3)
    assert frame is not None

    place = reader.set_aside(frame, "header.rank is 9: at most 7")

    assert place is not None
    assert place.read_bytes() == specimen.source.batches[3].payload
    assert place.with_suffix(".txt").read_text() == "header.rank is 9: at most 7"
    reader.close()


@pytest.mark.parametrize("damage", ["gone", "empty", "garbage"])
def test_a_spool_whose_head_is_damaged_is_known_by_its_batches(specimen: Specimen, damage: str) -> None:
    head = SpoolReader(specimen.folder).head
    path = specimen.folder / "spool.json"
    path.unlink() if damage == "gone" else path.write_bytes(b"" if damage == "empty" else b"\xff{")

    reader = SpoolReader(specimen.folder)

    assert (reader.head.project, reader.head.run_id, reader.head.launch_id) == (head.project, head.run_id, b"l" * 16)
    assert (reader.head.incarnation, reader.head.rank, reader.head.process_role) == (head.incarnation, 3, 1)
    assert [frame.seq for frame in frames(reader)] == list(range(COUNT))
    reader.close()


@pytest.mark.parametrize("text", ["", "[1]", '{"accepted": "x"}', "\xff"])
def test_a_standing_that_cannot_be_read_says_nothing_delivered(specimen: Specimen, text: str) -> None:
    (specimen.folder / "standing.json").write_text(text)

    reader = SpoolReader(specimen.folder)

    assert (reader.accepted, reader.durable, reader.recover()) == (0, 0, [])
    reader.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ESTALE, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "pread", "scandir"])
def test_what_the_disk_cannot_say_for_a_moment_is_no_absence(
    code: int, call: str, specimen: Specimen, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SpoolReader(specimen.folder)
    reader.note_standing(5, 5)

    def failing(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        for ask in (lambda: reader.next(5), lambda: reader.end_seq, lambda: reader.is_ended, reader.recover):
            with pytest.raises(OSError, match=os.strerror(code)):
                ask()
        assert not reader.remove()

    assert reader.recover() == []
    assert [frame.seq for frame in frames(reader)] == list(range(COUNT))
    assert (reader.end_seq, reader.is_ended) == (COUNT, True)
    reader.note_standing(COUNT, COUNT)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        assert not SpoolReader.remove(reader)
    assert specimen.folder.exists()
    assert reader.remove()
    reader.close()


@pytest.mark.parametrize("moment", [0, 1])
def test_a_sender_killed_while_it_removes_a_spool_leaves_none_or_all_of_it(
    moment: int, specimen: Specimen, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SpoolReader(specimen.folder)
    reader.note_standing(COUNT, COUNT)
    calls: list[object] = []

    def killed(*arguments: object, **_: object) -> None:
        calls.append(arguments)
        if len(calls) > moment:
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        reader.remove()
    reader.close()

    left = spools(specimen.folder.parent)
    assert left == ([] if moment else [specimen.folder])
    for folder in left:
        again = SpoolReader(folder)
        assert (again.end_seq, again.is_ended, again.recover()) == (COUNT, True, [])
        again.close()
