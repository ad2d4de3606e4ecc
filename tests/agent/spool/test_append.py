"""What is appended can be read, byte for byte, while and after it is written; a bound is a bound."""

import os
import shutil
import stat
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.spool import FolderLock, SpoolError, SpoolHead, SpoolReader, SpoolWriter, _writer, spools
from tests.agent.spool.sources import NOW_NS, Source, assert_true_to, frames, own, spooled, writer


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(_writer, "SEGMENT_BYTES", 4_096)
    monkeypatch.setattr(_writer, "MIN_SEGMENT_BYTES", 4_096)
    return 4_096


def test_a_batch_is_read_as_it_was_sealed(tmp_path: Path) -> None:
    source = Source()
    folder = spooled(tmp_path, source, 5)

    reader = SpoolReader(folder)

    assert [frame.seq for frame in frames(reader)] == [0, 1, 2, 3, 4]
    assert_true_to(source, frames(reader))
    assert (reader.base, reader.end_seq, reader.is_ended, reader.owner_is_gone) == (0, 5, True, True)
    reader.close()


def test_the_head_says_whose_spool_it_is(tmp_path: Path) -> None:
    who = own()
    head = SpoolHead.of(who, endpoints=["a:1", "b:2"], created_ns=NOW_NS)
    spool = SpoolWriter.create(tmp_path, head, key="rsk_1_secret", max_bytes=2**20)

    found = SpoolReader(spool.folder)

    assert found.head == head
    assert found.head.endpoints == ("a:1", "b:2")
    assert found.key == "rsk_1_secret"
    assert "secret" not in (spool.folder / "spool.json").read_text()
    spool.close()


def test_only_its_user_can_read_a_spool(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    spool = SpoolWriter.create(root, SpoolHead.of(own(), created_ns=NOW_NS), key="k", max_bytes=2**20)
    spool.append(Source().seal())

    for path in (root, spool.folder, *spool.folder.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    spool.close()


def test_a_reader_follows_a_living_writer(tmp_path: Path, small_segments: int) -> None:
    source = Source(who=own())
    spool = writer(tmp_path, who=source.who)
    reader = SpoolReader(spool.folder)
    assert reader.next(0) is None

    for seq in range(200):
        assert spool.append(source.seal())
        frame = reader.next(seq)
        assert frame is not None
        assert frame.seq == seq
        assert reader.next(seq + 1) is None
    assert not reader.owner_is_gone
    assert not reader.is_ended
    spool.close()
    assert reader.owner_is_gone
    reader.close()


def test_a_reader_in_another_thread_sees_whole_batches_only(tmp_path: Path, small_segments: int) -> None:
    source = Source(who=own())
    spool = writer(tmp_path, who=source.who)
    read: list[int] = []

    def follow() -> None:
        reader = SpoolReader(spool.folder)
        while not read or read[-1] < 399:
            frame = reader.next(len(read))
            if frame is not None:
                assert_true_to(source, [frame])
                read.append(frame.seq)
        reader.close()

    thread = threading.Thread(target=follow)
    thread.start()
    for _ in range(400):
        assert spool.append(source.seal(source.random.choice([0, 0, 900, 9_000])))
    thread.join(60)

    assert read == list(range(400))
    spool.close()


def test_a_batch_larger_than_a_segment_has_one_of_its_own(tmp_path: Path, small_segments: int) -> None:
    source = Source()
    spool = writer(tmp_path)
    for size in (0, 3 * small_segments, 0):
        assert spool.append(source.seal(size))
    spool.close()

    reader = SpoolReader(spool.folder)
    assert [frame.seq for frame in frames(reader)] == [0, 1, 2]
    assert_true_to(source, frames(reader))
    reader.close()


def test_batches_that_were_never_appended_are_no_damage(tmp_path: Path) -> None:
    source = Source()
    spool = writer(tmp_path)
    batches = [source.seal() for _ in range(8)]
    for seq in (1, 2, 5, 7):
        assert spool.append(batches[seq])
    spool.close()

    reader = SpoolReader(spool.folder)

    assert [(frame.seq, frame.skipped) for frame in frames(reader)] == [(1, 1), (2, 0), (5, 2), (7, 1)]
    assert reader.recover() == []
    reader.close()


def test_a_batch_is_not_appended_twice_nor_behind_a_later_one(tmp_path: Path) -> None:
    source = Source()
    spool = writer(tmp_path)
    first, second = source.seal(), source.seal()
    assert spool.append(second)

    assert not spool.append(second)
    assert not spool.append(first)
    assert spool.next_seq == 2
    spool.close()
    assert not spool.append(source.seal())


def test_the_bound_holds_until_the_sender_frees_segments(tmp_path: Path) -> None:
    source = Source()
    bound = 1024 * 1024
    spool = writer(tmp_path, max_bytes=bound)
    while spool.append(source.seal(20_000)):
        assert held(spool.folder) <= bound
    assert spool.fullness > 0.95
    assert not spool.append(source.batches[-1])

    reader = SpoolReader(spool.folder)
    half = spool.next_seq // 2
    reader.note_standing(half, half)
    assert reader.free_below(half) > 0
    assert reader.base <= half

    assert spool.append(source.batches[-1])
    spool.sync()
    assert 0.3 < spool.fullness < 0.7
    assert (spool.accepted, spool.durable) == (half, half)
    reader.close()
    spool.close()


def held(folder: Path) -> int:
    """Bytes of the segments."""
    return sum(path.stat().st_size for path in folder.glob("*.seg"))


def test_a_gap_has_room_when_the_spool_is_at_its_bound(tmp_path: Path) -> None:
    source = Source(who=own())
    spool = writer(tmp_path, who=source.who, max_bytes=256 * 1024)
    while spool.append(source.seal(20_000)):
        pass

    assert spool.append(source.batches[-1], urgent=True)
    for _ in range(20):
        assert spool.append(source.seal(1_000), urgent=True)

    reader = SpoolReader(spool.folder)
    assert [frame.seq for frame in frames(reader)] == list(range(spool.next_seq))
    assert_true_to(source, frames(reader))
    assert reader.recover() == []
    reader.note_standing(spool.next_seq, spool.next_seq)
    reader.free_below(spool.next_seq)
    assert spool.append(source.seal(20_000))
    spool.sync()
    assert (spool.folder / "reserve").stat().st_size == 1024 * 1024
    assert reader.next(spool.next_seq - 1) is not None
    reader.close()
    spool.close()


def test_files_removed_under_a_living_writer_cost_what_was_in_them(tmp_path: Path) -> None:
    source = Source(who=own())
    spool = writer(tmp_path, who=source.who)
    for _ in range(3):
        assert spool.append(source.seal())
    for path in spool.folder.glob("*.seg"):
        path.unlink()
    spool.sync()

    assert spool.append(source.seal())

    reader = SpoolReader(spool.folder)
    assert [frame.seq for frame in frames(reader)] == [3]
    (damage,) = reader.recover()
    assert (damage.seq_from, damage.seq_to) == (0, 2)
    assert dict(damage.rows_by_section) == dict(source.gone(range(3)))
    assert not reader.owner_is_gone
    reader.close()
    spool.close()


@pytest.mark.parametrize("what", ["spool.json", "spool", "root"])
def test_a_spool_removed_under_its_living_owner_is_made_again_whole(tmp_path: Path, what: str) -> None:
    source, root = Source(who=own()), tmp_path / "root"
    head = SpoolHead.of(source.who, created_ns=NOW_NS)
    spool = SpoolWriter.create(root, head, key="rsk_k", max_bytes=2**24)
    for _ in range(3):
        assert spool.append(source.seal())
    if what == "spool.json":
        (spool.folder / what).unlink()
    else:
        shutil.rmtree(spool.folder if what == "spool" else root)

    assert spool.append(source.seal())  # at once: also the last word of a run that ends now

    spool.sync()
    assert SpoolHead.read(spool.folder) == head
    reader = SpoolReader(spool.folder)
    assert [frame.seq for frame in frames(reader)] == ([0, 1, 2, 3] if what == "spool.json" else [3])
    assert reader.key == "rsk_k"
    assert not reader.owner_is_gone
    assert (spool.folder / "reserve").exists()
    lost = [Counter(one.rows_by_section) for one in reader.recover()]
    assert lost == ([] if what == "spool.json" else [source.gone(range(3))])
    assert {stat.S_IMODE(path.stat().st_mode) for path in (root, spool.folder)} == {0o700}
    reader.close()
    spool.close()
    assert FolderLock(spool.folder / "owner.lock").is_free()


def test_what_is_written_once_stays_young_for_those_who_remove_what_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(who=own())
    spool = writer(tmp_path, who=source.who)
    ages = {name: spool.folder / name for name in ("spool.json", "owner.lock")}
    for path in ages.values():
        os.utime(path, (0, 0))
    monkeypatch.setattr(_writer, "TOUCH_S", 0.0)

    assert spool.append(source.seal())

    assert all(path.stat().st_mtime > 0 for path in ages.values())
    spool.close()


def test_a_spool_is_removed_once_all_is_durable_and_its_owner_gone(tmp_path: Path) -> None:
    source = Source(who=own())
    spool = writer(tmp_path, who=source.who)
    for _ in range(3):
        assert spool.append(source.seal())
    reader = SpoolReader(spool.folder)
    reader.note_standing(3, 3)
    assert not reader.remove()
    spool.close()
    reader.note_standing(3, 2)
    assert not reader.remove()
    reader.note_standing(3, 3)

    assert reader.remove()

    assert spools(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")

    with pytest.raises(SpoolError, match="RANKSCOPE_SPOOL"):
        writer(place / "spool")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.sampled_from([0, 200, 2_000, 6_000])),
            st.tuples(st.just("skip"), st.just(0)),
            st.tuples(st.just("read"), st.integers(0, 60)),
            st.tuples(st.just("free"), st.integers(0, 60)),
            st.tuples(st.just("reopen"), st.just(0)),
            st.tuples(st.just("sync"), st.just(0)),
        ),
        max_size=80,
    )
)
def test_any_order_of_appends_reads_frees_and_restarts_of_the_sender_yields_what_was_appended(
    moves: list[tuple[str, int]], tmp_path: Path, small_segments: int
) -> None:
    source = Source(who=own())
    spool = writer(tmp_path / os.urandom(4).hex(), who=source.who)
    reader = SpoolReader(spool.folder)
    there: list[int] = []
    for move, number in moves:
        if move == "append":
            assert spool.append(source.seal(number))
            there.append(len(source.batches) - 1)
        elif move == "skip":
            source.seal()
        elif move == "sync":
            spool.sync()
        elif move == "reopen":
            reader.close()
            reader = SpoolReader(spool.folder)
        elif move == "free":
            below = min(number, spool.next_seq)
            reader.note_standing(max(below, reader.accepted), max(below, reader.durable))
            reader.free_below(below)
        else:
            frame = reader.next(number)
            expected = [seq for seq in there if seq >= number and seq >= reader.base]
            assert (frame and frame.seq) == (expected[0] if expected else None)
        held_seqs = [frame.seq for frame in frames(reader)]
        assert held_seqs == there[len(there) - len(held_seqs) :]
        assert not there or held_seqs[-1] == there[-1]
    assert_true_to(source, frames(reader))
    assert reader.recover() == []
    assert reader.end_seq == spool.next_seq
    spool.close()
    reader.close()
