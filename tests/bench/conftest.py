"""The report that all benchmarks add to."""

from collections.abc import Iterator

import pytest

from tests.bench.report import Report


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    """Written and printed when the last benchmark is done."""
    figures = Report()
    yield figures
    figures.write()
    print(f"\n\n{figures.table()}\n")
