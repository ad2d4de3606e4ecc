"""One kernel for all tests of a session."""

from collections.abc import Iterator

import pytest

from rankscope.probe.statistics import engines
from rankscope.probe.statistics.native import Kernel
from tests.agent.probe.statistics.engines import ENGINES, compiled, computing


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """Compiled for this machine."""
    return Kernel(compiled(tmp_path_factory.getbasetemp() / "rankscope"))


@pytest.fixture(params=ENGINES)
def each_engine(request: pytest.FixtureRequest, kernel: Kernel) -> Iterator[str]:
    """The test runs with both engines."""
    name = str(request.param)
    with computing(kernel if name == "kernel" else None):
        engines.state.is_sought = True  # or a kernel would be found, and take over, in the middle of a test
        yield name
