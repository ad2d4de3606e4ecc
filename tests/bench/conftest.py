"""The report that all benchmarks add to."""

from collections.abc import Iterator

import pytest

from tests.bench.paired import prepare_kernel
from tests.bench.report import Report


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    """Written and printed when the last benchmark is done."""
    figures = Report()
    yield figures
    figures.write()
    print(f"\n\n{figures.table()}\n")


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The kernel of statistics, compiled before anything is measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKSCOPE_HOME", str(tmp_path_factory.mktemp("home")))
        prepare_kernel()
