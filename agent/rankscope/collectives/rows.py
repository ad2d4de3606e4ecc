"""Rows of the section `collectives`, and gaps in it."""

from collections.abc import Sequence
from typing import NamedTuple

from rankscope._block import Block, Column
from rankscope_proto.columns import SECTION_BY_NAME
from rankscope_proto.names import COLLECTIVE_FLAGS, GapCause, GapClass

ENQUEUED = COLLECTIVE_FLAGS["enqueued"]
ASYNC = COLLECTIVE_FLAGS["async"]
P2P = COLLECTIVE_FLAGS["p2p"]
INTERRUPTED = COLLECTIVE_FLAGS["interrupted"]

_SECTION = SECTION_BY_NAME["collectives"]
_PRESENT = {name: 1 << (_SECTION.field(name).optional or 0) for name in ("exit", "device", "step")}


class Row(NamedTuple):
    """One row; the names are the section's, which says what each means. None: not known."""

    entry: int
    exit: int | None
    group: str
    group_ranks: str
    cseq: int
    op: str
    entry_source: str
    exit_source: str
    device: int | None
    bytes: int
    dtype: str
    shape: str
    reduction: str
    step: int | None
    microstep: int
    phase: int
    module: str
    flags: int


def block_of(rows: Sequence[Row]) -> Block:
    """At least one row as columns."""
    fields = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
    present = [0] * len(rows)
    for name, bit in _PRESENT.items():
        values = fields[name]
        present = [mask if value is None else mask | bit for mask, value in zip(present, values, strict=True)]
        fields[name] = tuple(value or 0 for value in values)
    columns: dict[str, Column] = {**fields, "present": present}
    return Block("collectives", len(rows), columns)


def gap_of(
    cause: GapCause, detail: str, *, start_ns: int, end_ns: int | None = None, count: int | None = None
) -> Block:
    """Collectives that were not recorded.

    Args:
        cause: Why.
        detail: What exactly.
        start_ns: Wall clock from which on.
        end_ns: Until when; None: it goes on.
        count: How many; None: not known.
    """
    columns: dict[str, Column] = {
        "class": [GapClass.NOT_CAPTURED.code],
        "cause": [cause.value],
        "data_kind": [_SECTION.name],
        "start": [start_ns],
        "detail": [detail],
    }
    if end_ns is not None:
        columns["end"] = [end_ns]
    if count is not None:
        columns["count"] = [count]
    return Block("gaps", 1, columns)
