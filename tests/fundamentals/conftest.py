"""A run whose batches stay in memory: `recorded()` seals what there is and shows it."""

from collections.abc import Callable, Iterator

import pytest

from rankscope import Run
from rankscope.testing import MemoryExporter, RecordedSpans

Recorded = Callable[[], RecordedSpans]


@pytest.fixture
def exporter() -> MemoryExporter:
    """Keeps what the run records."""
    return MemoryExporter()


@pytest.fixture
def run(exporter: MemoryExporter) -> Iterator[Run]:
    """A run of one process."""
    with Run(exporter) as run:
        yield run


@pytest.fixture
def recorded(run: Run, exporter: MemoryExporter) -> Recorded:
    """The spans that have finished so far."""

    def sealed() -> RecordedSpans:
        run.flush()
        return exporter.spans()

    return sealed
