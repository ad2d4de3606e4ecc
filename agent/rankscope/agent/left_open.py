"""Which spans a dead process left open: those that it wrote down last, but for those that ended after that.

Promise: no span is among them whose row lies in a batch. Where the batches that would tell are not there any more,
nothing is said: a span that is missing is better than one that is there twice.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

from google.protobuf.message import DecodeError

from rankscope._block import Block, Column
from rankscope._columns import block_of
from rankscope.spool import Frame, SpoolReader
from rankscope_proto.columns import SECTION_BY_NAME
from rankscope_proto.names import GapClass
from rankscope_proto.v1.batch_pb2 import Batch

SpanKey = tuple[int, int, int]
"""Trace id's upper and lower half, span id."""


@dataclass(frozen=True, slots=True)
class LeftRows:
    """What a process left open, as rows to state.

    Attributes:
        blocks: The spans, and a gap for those that were too many; at least one block.
        at_ns: When they were written down, on the wall clock. The spans end then, or with the newest batch.
        worker_index: Of the process, as its batches say.
        parent_rank: The rank it served.
        mesh: Axis name and coordinate, per axis.
    """

    blocks: Sequence[Block]
    at_ns: int
    worker_index: int
    parent_rank: int
    mesh: tuple[tuple[str, int], ...]


def left_rows(reader: SpoolReader) -> LeftRows | None:
    """The spans that the process of a spool left open; None: none, or it cannot be told.

    Raises:
        OSError: the disk does not say now.
    """
    left = reader.left_open()
    if left is None:
        return None
    first = reader.next(left.seq)
    if reader.durable > left.seq and (first is None or first.seq - first.skipped > left.seq):
        return None
    try:
        batch = Batch.FromString(left.payload)
    except DecodeError:
        return None
    ended: set[SpanKey] = set()
    alive_ns = batch.header.sealed
    for later in _behind(reader, first):
        ended.update(_keys(later))
        alive_ns = max(alive_ns, later.header.sealed)
    open_still = [row for row, key in enumerate(_keys(batch)) if key not in ended]
    if not open_still:
        return None
    spans = _rows(block_of(batch, "spans"), open_still)
    blocks = [_lasting(spans, alive_ns - batch.header.sealed)]
    if too_many := _not_captured(batch):
        blocks.append(_rows(block_of(batch, "gaps"), too_many))
    header = batch.header
    mesh = tuple(zip(header.mesh_axis, header.mesh_coordinate, strict=True))
    return LeftRows(blocks, header.sealed, header.worker_index, header.parent_rank, mesh)


def _behind(reader: SpoolReader, frame: Frame | None) -> Iterator[Batch]:
    """The batches from one on, but for those that cannot be read, which the store never has."""
    while frame is not None:
        with contextlib.suppress(DecodeError):
            yield Batch.FromString(frame.payload)
        frame = reader.next(frame.seq + 1)


def _lasting(spans: Block, longer_ns: int) -> Block:
    """The spans as long as their process is known to have lived: no child that ended outlives its parent."""
    durations = [duration + longer_ns for duration in cast("Sequence[int]", spans.columns["duration"])]
    return Block(spans.section, spans.count, {**spans.columns, "duration": durations})


def _keys(batch: Batch) -> list[SpanKey]:
    spans = batch.spans
    return list(zip(spans.trace_hi, spans.trace_lo, spans.span_id, strict=False))


def _not_captured(batch: Batch) -> list[int]:
    classes = cast("Sequence[int]", getattr(batch.gaps, "class"))
    return [row for row, code in enumerate(classes) if code == GapClass.NOT_CAPTURED.code]


def _rows(block: Block, rows: Sequence[int]) -> Block:
    """These rows of a block."""
    section = SECTION_BY_NAME[block.section]
    columns: dict[str, Column] = {}
    for name, column in block.columns.items():
        count = section.field(name).count
        if count is None:
            columns[name] = [column[row] for row in rows]
        else:
            ends = [0, *accumulate(cast("Sequence[int]", block.columns[count]))]
            columns[name] = [value for row in rows for value in column[ends[row] : ends[row + 1]]]
    return Block(block.section, len(rows), columns)
