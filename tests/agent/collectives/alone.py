"""A gloo group of one rank in this process, and a run that records its collectives into memory."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from rankscope._run import Run
from rankscope.collectives.attach import Collectives
from rankscope.collectives.recorder import FlightRecorder
from rankscope.testing import MemoryExporter

Row = dict[str, Any]


class Recorded:
    """A run whose rows can be asked for."""

    def __init__(self) -> None:
        self.exporter = MemoryExporter()
        self.run = Run(self.exporter)
        self.recording = self.run._recording  # pyright: ignore[reportPrivateUsage]  # behind the run

    def rows(self, section: str = "collectives") -> list[Row]:
        """The rows of a section; ends the run."""
        self.run.finish()
        return self.exporter.rows(section)

    def gaps(self) -> list[Row]:
        """What is stated to be absent; ends the run."""
        return self.rows("gaps")


class Alone(Recorded):
    """One whose collectives are recorded.

    Args:
        recorder: What it takes for torch's flight recorder.
    """

    def __init__(self, recorder: FlightRecorder | None = None) -> None:
        super().__init__()
        Collectives(self.recording, recorder).begin()


@contextmanager
def group_of_one() -> Generator[None]:
    """The default process group, of this process alone."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
