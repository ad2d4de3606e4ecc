"""What a sender leaves on the disk about how far it went, also on a disk that takes nothing more."""

from pathlib import Path

from rankscope.agent.adopt import RESERVED, SentMark
from rankscope.spool import mark_copied
from rankscope_proto.constructors import MAX_SEQ
from tests.agent.disks import fill, small_disk


def test_the_next_sender_knows_what_may_have_been_sent(tmp_path: Path) -> None:
    SentMark(tmp_path).reserve(7)

    assert SentMark(tmp_path).below(owner_is_gone=False) == 7 + RESERVED


def test_a_spool_that_nobody_sent_yet_has_nothing_to_look_for(tmp_path: Path) -> None:
    assert SentMark(tmp_path).below(owner_is_gone=False) == 0


def test_on_a_full_disk_sending_goes_on_and_the_next_sender_takes_all_for_sent(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", mebibytes=1) as disk:
        fill(disk)

        SentMark(disk).reserve(7)

        assert SentMark(disk).below(owner_is_gone=False) == MAX_SEQ + 1
        assert not list(disk.glob(".*"))


def test_a_copy_made_while_a_sender_sends_is_known_to_it_whatever_it_reserves_next(tmp_path: Path) -> None:
    mark = SentMark(tmp_path)
    mark.reserve(0)
    assert not mark.is_copied()

    mark_copied(tmp_path)
    mark.reserve(RESERVED)

    assert mark.is_copied()
    assert SentMark(tmp_path).is_copied()
