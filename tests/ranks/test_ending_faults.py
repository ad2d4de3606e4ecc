"""Faults that end or stop a training: while it happens, the verdict names their rank, collective, step and cause.

Each is a training of its own. Its fault waits until the agent has said where every rank stands, so a machine that is
busy changes how long that takes, and not what is found.
"""

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.cli.programs import rankscope
from tests.ground.stacks import Stack
from tests.ranks.faults import Fault, Kind
from tests.ranks.launches import Launch, Nursery

STEP, STEPS = 12, 30


@pytest.fixture
def train(nursery: Nursery) -> Iterator[Callable[[Fault], Launch]]:
    """Trains up to the fault, and lets it happen; the ranks are ended after the test."""
    started: list[Launch] = []

    def until(fault: Fault) -> Launch:
        launch = nursery.train(fault.kind.value, fault, steps=STEPS, is_gated=True)
        started.append(launch)
        launch.open()
        return launch

    yield until
    for launch in started:
        launch.end()


def test_a_rank_that_leaves_a_collective_out_is_the_one_that_did_not_come(train: Callable[[Fault], Launch]) -> None:
    launch = train(Fault(Kind.SKIP, 1, STEP))

    verdict = launch.verdict()

    assert (verdict["kind"], verdict["ranks"], verdict["step"]) == ("rank_missing", [1], STEP)
    assert (verdict["op"], verdict["evidence"]["waiting"]) == ("all_reduce", [0, 2, 3])


def test_a_killed_rank_is_the_dead_one_also_once_the_others_have_failed_over_it(
    train: Callable[[Fault], Launch],
) -> None:
    launch = train(Fault(Kind.KILL, 2, STEP))

    first = launch.verdict()
    launch.await_end()
    later = launch.verdict()

    assert (first["kind"], first["ranks"], first["step"]) == ("process_dead", [2], STEP)
    assert (later["kind"], later["ranks"], later["step"]) == ("process_dead", [2], STEP)


@pytest.mark.slow
def test_a_stopped_rank_is_told_from_one_that_waits(train: Callable[[Fault], Launch]) -> None:
    launch = train(Fault(Kind.STOP, 0, STEP))

    verdict = launch.verdict()

    assert (verdict["kind"], verdict["ranks"], verdict["step"]) == ("process_stopped", [0], STEP)


@pytest.mark.slow
def test_a_rank_with_another_order_of_collectives_is_the_odd_one(train: Callable[[Fault], Launch]) -> None:
    launch = train(Fault(Kind.REORDER, 2, STEP))

    verdict = launch.verdict()

    assert (verdict["kind"], verdict["ranks"], verdict["step"]) == ("order_mismatch", [2], STEP)
    assert "rank 2: broadcast(1000)" in verdict["sentence"]


@pytest.mark.slow
def test_the_rank_that_raised_is_told_from_those_that_failed_over_it(
    train: Callable[[Fault], Launch], stack: Stack
) -> None:
    launch = train(Fault(Kind.RAISE, 3, STEP))

    launch.await_end()
    launch.await_rows()
    checked = rankscope("check", launch.run, "--rule", "first_failure", home=stack.home)

    assert checked.status == 4
    assert "rank 3 failed first, with ValueError at step 12; ranks 0, 1, 2 failed after it" in checked.stdout


@pytest.mark.slow
def test_a_rank_that_dies_over_the_size_of_its_collective_is_told_by_the_size(train: Callable[[Fault], Launch]) -> None:
    launch = train(Fault(Kind.SIZE, 3, STEP))

    launch.await_end()
    launch.await_seen()
    verdict = launch.verdict()

    assert launch.statuses()[3] == -signal.SIGABRT
    assert (verdict["kind"], verdict["ranks"], verdict["step"]) == ("size_mismatch", [3], STEP)
    assert "rank 3: 999" in verdict["sentence"]
