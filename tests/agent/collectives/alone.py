"""A gloo group of one rank in this process, and a run that records its collectives into memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from rankscope._run import Run
from rankscope.collectives.attach import Collectives
from rankscope.collectives.recorder import FlightRecorder
from rankscope.testing import MemoryExporter

Row = dict[str, Any]


class Alone:
    """A run whose rows can be asked for.

    Args:
        recorder: What it takes for torch's flight recorder.
    """

    def __init__(self, recorder: FlightRecorder | None = None) -> None:
        self.exporter = MemoryExporter()
        self.run = Run(self.exporter)
        self.collectives = Collectives(self.run._recording, recorder)
        self.collectives.begin()

    def rows(self, section: str = "collectives", **wanted: object) -> list[Row]:
        """The rows of a section so far whose fields have the wanted values; ends the run."""
        self.run.finish()
        found: list[Row] = self.exporter.rows(section)
        return [row for row in found if all(row[name] == value for name, value in wanted.items())]


@contextmanager
def group_of_one() -> Iterator[None]:
    """The default process group, of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def rows_of(work: Callable[[Run], object]) -> list[Row]:
    """The collectives of some work in a group of one."""
    with group_of_one():
        alone = Alone()
        work(alone.run)
        return alone.rows()
