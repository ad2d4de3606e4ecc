"""What damage took, exactly: the headers on both sides of a hole say how many rows were emitted between them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from google.protobuf.message import DecodeError

from rankscope.spool._frames import Frame, header_bytes, header_of
from rankscope_proto.columns import SECTIONS
from rankscope_proto.names import GapClass
from rankscope_proto.v1.batch_pb2 import Batch, Header


@dataclass(frozen=True, slots=True)
class Damage:
    """Batches that were appended and cannot be read any more.

    Attributes:
        seq_from: The first.
        seq_to: The last.
        rows_by_section: Rows lost with them, exact; sections without any are left out.
        detail: What was found, for a person.
    """

    seq_from: int
    seq_to: int
    rows_by_section: Mapping[str, int]
    detail: str


def emitted_of(header: bytes) -> Counter[str] | None:
    """Rows of each section emitted up to and including the batch with this header; None: not a header."""
    try:
        return _sums(header_of(header)) if header else None
    except DecodeError:
        return None


def emitted_before(frame: Frame, *, after: int, following: Iterable[Frame] = ()) -> Counter[str] | None:
    """Rows of each section that were emitted before a batch, and that neither it nor one behind it declares lost.

    Args:
        frame: The batch.
        after: The last seq before the hole; gap rows that name batches up to it speak of other rows.
        following: Batches behind it, which may declare ones that the owner never appended.

    Returns:
        None: the payload is not a batch.
    """
    try:
        batch = Batch.FromString(frame.payload)
        later = [Batch.FromString(one.payload) for one in following]
    except DecodeError:
        return None
    sums = _sums(batch.header)
    for section in SECTIONS:
        rows = getattr(getattr(batch, section.name), section.key)
        sums[section.name] -= len(cast("list[object]", rows))
    hole = range(after + 1, frame.seq)
    sums.subtract(_declared(batch, hole, of_now=True))
    for one in later:
        sums.subtract(_declared(one, hole, of_now=False))
    return sums


def _sums(header: Header) -> Counter[str]:
    return Counter({section.name: int(getattr(header, f"emitted_{section.name}")) for section in SECTIONS})


def _declared(batch: Batch, hole: range, *, of_now: bool) -> Counter[str]:
    """Rows that a batch's own gap rows declare lost: of batches in the hole, and (`of_now`) of none.

    A gap row that names no batch is of rows lost before sealing, counted as emitted with this very batch.
    """
    lost: Counter[str] = Counter()
    gaps = batch.gaps
    for row, code in enumerate(getattr(gaps, "class")):
        present = gaps.present[row] if gaps.present else ~0
        names_batch = bool(present & _SEQ_FROM and gaps.seq_from)
        is_own = not (present & _INCARNATION and gaps.incarnation_hi)
        if code != GapClass.LOST.code or not is_own or not (present & _COUNT and gaps.count):
            continue
        if (gaps.seq_from[row] in hole) if names_batch else of_now:
            lost[batch.strings[gaps.data_kind[row]]] += gaps.count[row]
    return lost


_COUNT, _SEQ_FROM, _INCARNATION = 1 << 0, 1 << 1, 1 << 7
"""Bits of `present` in a gap row."""


def damage_between(
    seq_from: int, frame: Frame, *, emitted: Counter[str] | None, following: Iterable[Frame] = (), detail: str
) -> Damage:
    """What is missing from `seq_from` up to a batch.

    Args:
        seq_from: The first seq missing.
        frame: The first batch that is there again.
        emitted: Rows emitted before `seq_from`; None: not known, and then nothing can be counted.
        following: Batches behind it.
        detail: What was found.
    """
    seq_to = frame.seq - frame.skipped - 1
    sums = emitted_before(frame, after=seq_from - 1, following=following)
    if sums is None or emitted is None:
        return Damage(seq_from, seq_to, {}, f"{detail}; how many rows were in them is not known")
    sums.subtract(emitted)
    return Damage(seq_from, seq_to, {name: rows for name, rows in sums.items() if rows > 0}, detail)


def emitted_with(frame: Frame) -> Counter[str] | None:
    """Rows of each section emitted up to and including a batch; None: its header cannot be read."""
    return emitted_of(header_bytes(frame.payload))
