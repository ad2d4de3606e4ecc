"""Rows of the section `collectives`, and gaps in it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from rankscope._block import Block, Column
from rankscope_proto.columns import SECTION_BY_NAME
from rankscope_proto.names import COLLECTIVE_FLAGS, GapCause, GapClass

ENQUEUED = COLLECTIVE_FLAGS["enqueued"]
ASYNC = COLLECTIVE_FLAGS["async"]
P2P = COLLECTIVE_FLAGS["p2p"]
INTERRUPTED = COLLECTIVE_FLAGS["interrupted"]

_SECTION = SECTION_BY_NAME["collectives"]
_PRESENT = {name: 1 << (_SECTION.field(name).optional or 0) for name in ("exit", "device", "step")}


@dataclass(slots=True)
class Row:
    """One row; the names are the section's, which says what each means. None: not known."""

    entry: int
    group: str
    cseq: int
    op: str
    entry_source: str
    exit: int | None = None
    exit_source: str = ""
    device: int | None = None
    group_ranks: str = ""
    bytes: int = 0
    dtype: str = ""
    shape: str = ""
    reduction: str = ""
    step: int | None = None
    microstep: int = 0
    phase: int = 0
    module: str = ""
    flags: int = 0


_NAMES = tuple(field.name for field in fields(Row))


def block_of(rows: Sequence[Row]) -> Block:
    """At least one row as columns."""
    columns: dict[str, Column] = {}
    present = [0] * len(rows)
    for name in _NAMES:
        values = [getattr(row, name) for row in rows]
        bit = _PRESENT.get(name)
        if bit is not None:
            present = [mask if value is None else mask | bit for mask, value in zip(present, values, strict=True)]
            values = [value or 0 for value in values]
        columns[name] = values
    columns["present"] = present
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
