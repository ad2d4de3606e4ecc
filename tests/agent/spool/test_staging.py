"""Spools copied to a shared folder before the node's disk is wiped: whole, once, and drained from there."""

import errno
import os
from pathlib import Path

import pytest

from rankscope.spool import SENT_MARK, SpoolError, SpoolReader, is_copied, mark_copied, spools, stage_out, was_removed
from rankscope.spool._disk import segment_paths
from tests.agent.spool.sources import Source, assert_true_to, frames, own, spooled, writer


def test_what_was_staged_out_is_the_same_spool_without_its_key(tmp_path: Path) -> None:
    source = Source()
    folder = spooled(tmp_path / "spool", source, 5)
    (folder / "key").write_text("rsk_secret")

    (place,) = stage_out(tmp_path / "spool", tmp_path / "shared")

    assert place.name == f"n-{folder.name}"
    assert spools(tmp_path / "shared") == [place]
    reader = SpoolReader(place)
    assert reader.head == SpoolReader(folder).head
    assert [frame.seq for frame in frames(reader)] == list(range(5))
    assert_true_to(source, frames(reader))
    assert reader.key is None
    assert reader.owner_is_gone
    assert not list(place.glob(".*"))
    reader.close()


def test_staging_out_again_adds_what_is_new_and_touches_nothing_else(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", Source(), 2)
    (place,) = stage_out(tmp_path / "spool", tmp_path / "shared")
    (segment,) = place.glob("*.seg")
    before = segment.stat().st_mtime_ns

    late = Source(who=own())
    spooled(tmp_path / "spool", late, 3)
    places = stage_out(tmp_path / "spool", tmp_path / "shared")

    assert len(places) == 2
    assert segment.stat().st_mtime_ns == before
    assert set(spools(tmp_path / "shared")) == set(places)


def test_a_copy_cut_short_is_made_whole_the_next_time(tmp_path: Path) -> None:
    source = Source()
    spooled(tmp_path / "spool", source, 4)
    (place,) = stage_out(tmp_path / "spool", tmp_path / "shared")
    (segment,) = place.glob("*.seg")
    os.truncate(segment, 10)

    stage_out(tmp_path / "spool", tmp_path / "shared")

    reader = SpoolReader(place)
    assert_true_to(source, frames(reader))
    assert reader.end_seq == 4
    reader.close()


def test_what_a_living_process_still_appends_to_stays(tmp_path: Path) -> None:
    source = Source(who=own())
    spool = writer(tmp_path / "spool", who=source.who)
    assert spool.append(source.seal())

    (place,) = stage_out(tmp_path / "spool", tmp_path / "shared")

    assert not list(place.glob("*.seg"))
    assert spool.append(source.seal())
    spool.close()
    stage_out(tmp_path / "spool", tmp_path / "shared")
    reader = SpoolReader(place)
    assert reader.end_seq == 2
    reader.close()


def test_an_owner_that_begins_a_segment_and_ends_meanwhile_leaves_no_hole_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(who=own())
    spool = writer(tmp_path / "spool", who=source.who)
    assert spool.append(source.seal())

    def listed_before_the_end(folder: Path) -> list[Path]:
        found = segment_paths(folder)
        while len(segment_paths(folder)) == len(found):
            assert spool.append(source.seal(256 * 1024))
        spool.close()
        return found

    monkeypatch.setattr("rankscope.spool._staging.segment_paths", listed_before_the_end)
    (place,) = stage_out(tmp_path / "spool", tmp_path / "shared")
    monkeypatch.undo()

    assert not list(place.glob("*.seg"))
    stage_out(tmp_path / "spool", tmp_path / "shared")
    reader = SpoolReader(place)
    assert reader.end_seq == len(source.batches)
    assert_true_to(source, frames(reader))
    reader.close()


def test_what_is_durable_is_not_staged_out(tmp_path: Path) -> None:
    folder = spooled(tmp_path / "spool", Source(), 2)
    reader = SpoolReader(folder)
    reader.note_standing(2, 2)
    reader.close()

    assert stage_out(tmp_path / "spool", tmp_path / "shared") == []


def test_a_target_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", Source(), 2)
    (tmp_path / "shared").write_text("")

    with pytest.raises(SpoolError, match=r"cannot be staged out to .*shared"):
        stage_out(tmp_path / "spool", tmp_path / "shared")


def test_from_then_on_the_senders_of_both_know_that_the_other_may_have_sent_any_batch(tmp_path: Path) -> None:
    folder = spooled(tmp_path / "spool", Source(), 5)
    (folder / SENT_MARK).write_text("2")
    assert not is_copied(folder)

    (place,) = stage_out(tmp_path / "spool", tmp_path / "shared")

    assert is_copied(folder)
    assert is_copied(place)
    assert not (place / SENT_MARK).exists()


def test_where_the_disk_takes_no_file_the_name_of_one_says_that_there_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / SENT_MARK).write_text("2")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "touch", full)
    mark_copied(tmp_path)

    assert is_copied(tmp_path)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        mark_copied(tmp_path)


def test_a_folder_of_which_the_disk_says_nothing_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread, whole = (spooled(tmp_path, Source(who=own()), 1) for _ in range(2))
    is_there = Path.exists

    def failing(self: Path) -> bool:
        if self.parent == unread:
            raise OSError(errno.EACCES, "Permission denied")
        return is_there(self)

    monkeypatch.setattr(Path, "exists", failing)

    assert set(spools(tmp_path)) == {unread, whole}
    assert not was_removed(unread)
