"""What tests of the ways people train have in common."""

import pytest

from tests.agent.probe.trainings import Recorded


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()
