"""What a process can no longer say itself: which of its batches are lost, with their exact rows, and its open spans."""

import time
from collections import Counter
from dataclasses import replace
from typing import cast

from google.protobuf.message import DecodeError

from rankscope.agent.courier import Courier, Loss
from rankscope.agent.left_open import left_rows
from rankscope.spool import Frame, SpoolReader
from rankscope_proto.columns import SECTIONS
from rankscope_proto.constructors import TIME_LOW
from rankscope_proto.failpoints import reach
from rankscope_proto.names import GapCause, GapClass, ProcessRole
from rankscope_proto.v1.batch_pb2 import Batch

_HAS_COUNT, _IS_OTHERS = 1 << 0, 1 << 7
"""Bits of `present` in a gap row."""


class Account:
    """States the losses of one spool.

    Args:
        reader: The spool.
        courier: Carries the statements.
    """

    def __init__(self, reader: SpoolReader, courier: Courier) -> None:
        self._reader = reader
        self._courier = courier
        self._stated: set[str] = set()
        # A statement that is refused is not worth another: the loss it speaks of is stated by whoever was first.
        self._speaks = reader.head.process_role != ProcessRole.AGENT.code

    def refuse(self, frame: Frame, cause: GapCause, *, detail: str) -> None:
        """Set a batch aside that will never be accepted, and state its rows.

        Raises:
            OSError, SpoolError: it cannot be written down.
        """
        self._reader.set_aside(frame, detail)
        self._state(Loss(cause, (frame.seq, frame.seq), rows_of(frame), _sealed_ns(frame), detail))

    def account_for_holes(self, *, before: int) -> None:
        """State the batches that were appended and cannot be read.

        Args:
            before: The batch that goes next; holes behind it are stated when they are reached.

        Raises:
            OSError, SpoolError: it cannot be written down.
        """
        for damage in self._reader.recover(up_to=before):
            behind = self._reader.next(damage.seq_to + 1)
            at_ns = self._reader.head.created_ns if behind is None else _sealed_ns(behind)
            seqs = (damage.seq_from, damage.seq_to)
            self._state(Loss(GapCause.SPOOL_CORRUPT, seqs, damage.rows_by_section, at_ns, damage.detail))

    def close(self) -> None:
        """State what the process left open, and that it ended without its last word; nothing where it ended in order.

        Called once nothing more will be appended.

        Raises:
            OSError, SpoolError: it cannot be written down.
        """
        reader = self._reader
        if reader.is_ended or not reader.end_seq:
            return
        if self._speaks and (left := left_rows(reader)) is not None:
            reach("agent.close_spans")
            self._courier.close_spans(reader.head, left, key=reader.key)
            reach("agent.after_close_spans")
        detail = f"the process ended without its last word; the last batch known is {reader.end_seq - 1}"
        self._state(Loss(GapCause.TAIL_UNKNOWN, None, {}, reader.head.created_ns, detail))

    def _state(self, loss: Loss) -> None:
        if self._speaks and loss.name not in self._stated:
            loss = replace(loss, at_ns=_in_range(loss.at_ns))
            self._courier.state(self._reader.head, loss, key=self._reader.key)
            self._stated.add(loss.name)


def rows_of(frame: Frame) -> Counter[str]:
    """Rows that are lost with a batch, by section: its own, and those that its gaps were to declare lost."""
    try:
        batch = Batch.FromString(frame.payload)
    except DecodeError:
        return Counter({"": frame.rows})
    found: Counter[str] = Counter()
    for section in SECTIONS:
        found[section.name] = len(cast("list[object]", getattr(getattr(batch, section.name), section.key)))
    gaps = batch.gaps
    for row, code in enumerate(getattr(gaps, "class")):
        present = gaps.present[row] if gaps.present else ~0
        is_others = bool(gaps.incarnation_hi) and bool(present & _IS_OTHERS)
        if code == GapClass.LOST.code and gaps.count and present & _HAS_COUNT and not is_others:
            found[batch.strings[gaps.data_kind[row]]] += gaps.count[row]
    return Counter({name: rows for name, rows in found.items() if rows})


def _sealed_ns(frame: Frame) -> int:
    try:
        return int(Batch.FromString(frame.payload).header.sealed)
    except DecodeError:
        return 0


def _in_range(at_ns: int) -> int:
    """The time, or now where no gateway would take it: a statement must not fail for the clock that the batch had."""
    now_ns = time.time_ns()
    return at_ns if TIME_LOW <= at_ns <= now_ns else now_ns
