"""Spools as a trainer fills them, without the trainer."""

import os
import time
from pathlib import Path

from rankscope._block import Block
from rankscope._clock import Clock, SystemClock
from rankscope._export import SealedBatch
from rankscope._identity import Identity
from rankscope._seal import Sealer
from rankscope.spool import SpoolHead, SpoolWriter
from rankscope_proto.identity import uuid7


class Trainer:
    """Seals batches of scalars and appends them to a spool of its own.

    Attributes:
        folder: The spool.
        identity: Who it is.
        batches: All it sealed.
        boot_id: The boot that its headers name.
    """

    boot_id = ""

    def __init__(
        self, root: Path, *, run_id: str = "r", rank: int = 0, key: str = "", pid: int = 0, endpoint: str = ""
    ) -> None:
        self.identity = Identity(
            "p",
            run_id,
            b"l" * 16,
            uuid7(time.time_ns(), os.urandom(10)),
            rank=rank,
            world_size=rank + 1,
            node="n",
            pid=pid or os.getpid(),
            boot_id=self.boot_id,
        )
        self._clock = self.make_clock()
        self._sealer = Sealer(self.identity, clock=self._clock)
        head = SpoolHead.of(self.identity, endpoints=[endpoint] if endpoint else [], created_ns=time.time_ns())
        self.writer = SpoolWriter.create(root, head, key=key or None, max_bytes=256 * 2**20)
        self.folder = self.writer.folder
        self.batches: list[SealedBatch] = []

    def make_clock(self) -> Clock:
        """The clock of its headers."""
        return SystemClock()

    def append(self, count: int = 1, *, rows: int = 3, is_last: bool = False) -> None:
        """Seal and append so many batches."""
        for number in range(count):
            batch = self.seal(rows)
            assert self.writer.append(batch, is_last=is_last and number == count - 1)

    def seal(self, rows: int = 3) -> SealedBatch:
        """The next batch, not appended."""
        now_ns = self._clock.wall_ns()
        values = [float(row) for row in range(rows)]
        columns = {"name": ["loss"] * rows, "step": list(range(rows)), "value": values, "time": [now_ns] * rows}
        self._sealer.add(Block("scalars", rows, columns))
        batch = self._sealer.seal()
        assert batch is not None
        self.batches.append(batch)
        return batch

    def end(self) -> None:
        """Append no more."""
        self.writer.close()
