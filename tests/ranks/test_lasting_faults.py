"""Faults that a training survives, all in one: each is found at its rank, its step and its cause, and no other is."""

import pytest

from tests.ranks.faults import Fault, Kind
from tests.ranks.launches import Launch, Nursery

STEPS = 90
SLOW = Fault(Kind.SLOW_INPUT, 2, 20, until=70, every=5, ms=30)
OVERFLOW = Fault(Kind.OVERFLOW, 1, 80, block=2)


@pytest.fixture(scope="module")
def ill(nursery: Nursery) -> Launch:
    """A training that had them and is over, all its rows stored."""
    launch = nursery.train("lasting", SLOW, OVERFLOW, steps=STEPS)
    launch.await_end()
    assert launch.statuses() == dict.fromkeys(range(4), 0), nursery.said(launch)
    launch.await_rows()
    return launch


def test_an_overflow_in_one_block_of_one_rank_is_the_first_non_finite_value(ill: Launch) -> None:
    first = ill.get("/findings")["nonfinite"]

    assert (first["rank"], first["step"], first["name"]) == (1, 80, "blocks.2")
    assert (first["role"], first["phase"]) == ("activation", "forward")
