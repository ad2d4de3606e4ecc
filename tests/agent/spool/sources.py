"""A process that seals batches of a few small rows and spools them; what is true of it is kept beside."""

import os
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rankscope._block import Block, Column
from rankscope._export import SealedBatch
from rankscope._identity import Identity
from rankscope._seal import Sealer
from rankscope.spool import Frame, SpoolHead, SpoolReader, SpoolWriter
from rankscope.testing import ManualClock
from rankscope_proto.names import GapCause

NOW_NS = 1_750_000_000_000_000_000
WHO = Identity("p", "r", b"l" * 16, bytes(range(16)), rank=3, world_size=8, node="n", pid=0, boot_id="b")


class Source:
    """Seals batches with exact sums.

    Args:
        seed: Of all that is random in it.

    Attributes:
        batches: What was sealed, by seq.
        lost: Rows that each batch declares lost before sealing, by seq.
    """

    def __init__(self, seed: int = 0, *, who: Identity = WHO) -> None:
        self.who = who
        self.random = random.Random(seed)
        self.batches: list[SealedBatch] = []
        self.lost: list[Counter[str]] = []
        self.sealer = Sealer(who, clock=ManualClock())

    def seal(self, size: int = 0) -> SealedBatch:
        """A batch of random rows, and text of about `size` bytes."""
        lost: Counter[str] = Counter()
        rows = self.random.randrange(1, 5)
        columns: dict[str, Column] = {"name": ["m"] * rows, "value": [0.5] * rows, "time": [NOW_NS] * rows}
        self.sealer.add(Block("scalars", rows, columns))
        if size or self.random.random() < 0.3:
            text = self.random.randbytes(size // 2).hex()
            event: dict[str, Column] = {"kind": ("k",), "name": ("e",), "time": (NOW_NS,), "payload": (text,)}
            self.sealer.add(Block("events", 1, event))
        if self.random.random() < 0.3:
            lost["spans"] = self.random.randrange(1, 100)
            self.sealer.add_lost(lost, cause=GapCause.RING_FULL)
        batch = self.sealer.seal()
        assert batch is not None
        self.batches.append(batch)
        self.lost.append(lost)
        return batch

    def gone(self, seqs: Iterable[int]) -> Counter[str]:
        """Rows that are lost with these batches: theirs, and those whose only statement was in them."""
        rows: Counter[str] = Counter()
        for seq in seqs:
            rows.update(self.batches[seq].counts)
            rows.update(self.lost[seq])
        return rows


def writer(root: Path, *, who: Identity = WHO, max_bytes: int = 64 * 2**20) -> SpoolWriter:
    """The spool of `who`, with a bound that no test meets by accident."""
    return SpoolWriter.create(root, SpoolHead.of(who, created_ns=NOW_NS), max_bytes=max_bytes)


def spooled(root: Path, source: Source, count: int, *, size: int = 0) -> Path:
    """The folder of a closed spool with so many batches of the source."""
    spool = writer(root, who=source.who)
    for number in range(count):
        assert spool.append(source.seal(size), is_last=number == count - 1)
    spool.close()
    return spool.folder


def frames(reader: SpoolReader) -> list[Frame]:
    """All that can be read."""
    found: list[Frame] = []
    frame = reader.next(0)
    while frame is not None:
        found.append(frame)
        frame = reader.next(frame.seq + 1)
    return found


def assert_true_to(source: Source, found: Iterable[Frame]) -> None:
    """Every frame is the batch of its seq, byte for byte."""
    for frame in found:
        batch = source.batches[frame.seq]
        assert (frame.payload, frame.digest, frame.rows, frame.week) == (
            batch.payload,
            batch.digest,
            batch.rows,
            batch.week,
        )


def own(who: Identity = WHO) -> Identity:
    """The same as this very process, under an incarnation of its own."""
    return replace(who, pid=os.getpid(), incarnation=os.urandom(16))
