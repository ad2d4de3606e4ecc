"""One process that forks the ranks of every training here, over the one stack of the test run."""

from collections.abc import Iterator

import pytest

from tests.ground.stacks import Stack
from tests.ranks.launches import Nursery


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Nursery]:
    """Starts trainings; what is left of them is ended with it."""
    made = Nursery(tmp_path_factory.mktemp("nursery"), stack)
    yield made
    made.stop()
