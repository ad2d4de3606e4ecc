"""Faults that a training survives, all in one: each is found at its rank, its step and its cause, and no other is."""

import pytest

from tests.cli.programs import rankscope
from tests.ground.stacks import Stack
from tests.ranks.faults import RANKS, Fault, Kind
from tests.ranks.launches import Launch, Nursery

STEPS = 90
OVERFLOW = Fault(Kind.OVERFLOW, 1, 10, block=2)
SLOW = Fault(Kind.SLOW_INPUT, 2, 20, until=STEPS, every=5, ms=60)


@pytest.fixture(scope="module")
def ill(nursery: Nursery) -> Launch:
    """A training that had them and is over, all its rows stored."""
    launch = nursery.train("lasting", OVERFLOW, SLOW, steps=STEPS)
    launch.await_end()
    assert launch.statuses() == dict.fromkeys(range(RANKS), 0), nursery.said(launch)
    launch.await_rows()
    return launch


def test_an_overflow_in_one_block_of_one_rank_is_where_the_others_have_theirs_from(ill: Launch) -> None:
    found = ill.get("/provenance")

    origin, received = found["origin"], found["received"]
    assert (origin["rank"], origin["step"], origin["name"]) == (1, 10, "blocks.2")
    assert (origin["role"], origin["phase"]) == ("activation", "forward")
    assert [one["rank"] for one in received] == [0, 2, 3]
    assert {(one["from_rank"], one["via"]["op"], one["step"]) for one in received} == {(1, "all_reduce", 10)}
    assert found["undecided"] == []


def test_a_job_that_checks_the_run_fails_over_it(ill: Launch, stack: Stack) -> None:
    checked = rankscope("check", ill.run, "--rule", "nonfinite", "--rule", "straggler", home=stack.home)
    doctor = rankscope("doctor", ill.run, home=stack.home)

    assert checked.status == 4
    assert "on rank 1 in forward of step 10; 3 ranks received theirs" in checked.stdout
    assert "rank 2 makes the others wait in every 5. step" in checked.stdout
    assert doctor.status == 0
    assert f"run {ill.run} is complete" in doctor.stdout
    assert "clocks     4 of 4 measured" in doctor.stdout
    assert "hang       none" in doctor.stdout
    assert "on rank 1 in forward of step 10" in doctor.stdout


def test_a_rank_whose_input_is_slow_every_fifth_step_holds_the_others_up_and_says_by_what(ill: Launch) -> None:
    found = ill.get("/stragglers")["items"]

    stragglers = [item for item in found if item["is_straggler"]]
    assert [(item["rank"], item["every"], item["cause"]) for item in stragglers] == [(2, 5, "input")]
    assert stragglers[0]["since_step"] in range(20, 40, 5)
