"""Rows of `standings` in the diaries of a root."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankscope.spool import SpoolError, SpoolHead, SpoolReader, spools
from rankscope.testing import rows_of
from rankscope_proto.names import ProcessRole
from rankscope_proto.v1.batch_pb2 import Batch


def heads_in(root: Path) -> dict[int, SpoolHead]:
    """The ranks that have a spool there."""
    heads: dict[int, SpoolHead] = {}
    for folder in spools(root):
        head = SpoolHead.read(folder)
        if head.process_role != ProcessRole.AGENT.code:
            heads[head.rank] = head
    return heads


def batches_of_agents(root: Path) -> Iterator[Batch]:
    """What the diaries there hold, one after another."""
    for folder in spools(root):
        try:
            reader = SpoolReader(folder)
        except SpoolError:
            continue
        frame = reader.next(0) if reader.head.process_role == ProcessRole.AGENT.code else None
        while frame is not None:
            yield Batch.FromString(frame.payload)
            frame = reader.next(frame.seq + 1)
        reader.close()


def rows_of_process(root: Path, head: SpoolHead) -> list[dict[str, Any]]:
    """What was said of a process, in order."""
    incarnation = head.incarnation
    halves = int.from_bytes(incarnation[:8], "big"), int.from_bytes(incarnation[8:], "big")
    rows = (row for batch in batches_of_agents(root) for row in rows_of(batch, "standings"))
    return [row for row in rows if (row["of_hi"], row["of_lo"]) == halves]
