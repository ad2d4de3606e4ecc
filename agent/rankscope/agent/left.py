"""What the spools of a root still hold. Needs no gRPC: it is asked by whoever waits."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from rankscope.spool import SpoolError, SpoolReader, spools, was_removed


@dataclass(frozen=True, slots=True)
class Left:
    """A spool that holds something not durable.

    Attributes:
        run_id: The run; "": it cannot be read.
        rank: Global; -1: none.
        node: Where it was recorded; of one that cannot be read its folder.
        batches: Batches that are not known to be in the store.
        size: Bytes of its segments.
    """

    run_id: str
    rank: int
    node: str
    batches: int
    size: int


def left_in(root: Path, *, run_id: str | None = None, since_ns: int = 0) -> list[Left]:
    """The spools of a root that hold something not durable.

    Args:
        root: The folder of the spools.
        run_id: Only those of a run; None: of any.
        since_ns: Only those made since, on the wall clock.
    """
    found: list[Left] = []
    for folder in spools(root):
        try:
            reader = SpoolReader(folder)
        except SpoolError:
            found += _unread(folder)
            continue
        head = reader.head
        if head.created_ns < since_ns or (run_id is not None and head.run_id != run_id):
            continue
        missing = reader.end_seq - reader.durable
        if missing > 0:
            found.append(Left(head.run_id, head.rank, head.node, missing, reader.backlog_bytes))
        reader.close()
    return found


def _unread(folder: Path) -> list[Left]:
    """A spool of which nothing can be read counts as left, whoever asks; one that was just removed does not."""
    if was_removed(folder):
        return []
    size = 0
    with contextlib.suppress(OSError):
        size = sum(segment.stat().st_size for segment in folder.glob("*.seg"))
    return [Left("", -1, str(folder), 0, size)]
