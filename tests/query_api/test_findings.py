"""Who makes the others wait: found where there is someone, and nobody accused on a machine that is only loud."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from rankscope_query_api.findings import Straggler, find_straggler
from rankscope_query_api.values import StepTimes
from tests.query_api.noise import LOUD, MS, Fault, Noise, training

QUIET = Noise(sigma=0.05, drift=0.0, spikes=0.0, slow_steps=0.0)
LATE_INPUT = Fault(rank=2, since=20, phase="input", delay_ms=80)


def found_in(rows: list[StepTimes]) -> Straggler:
    """The straggler that must be there."""
    straggler = find_straggler(rows)
    assert straggler is not None
    return straggler


@pytest.mark.parametrize("noise", LOUD, ids=repr)
def test_nobody_is_accused_in_clean_runs(noise: Noise) -> None:
    accused = [seed for seed in range(40) if find_straggler(training(seed, noise=noise))]

    assert not accused


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("noise", LOUD, ids=repr)
def test_of_200_clean_runs_two_are_accused_at_most(noise: Noise, ranks: int) -> None:
    accused = [seed for seed in range(1000, 1200) if find_straggler(training(seed, noise=noise, ranks=ranks))]

    assert len(accused) <= 2


@pytest.mark.parametrize("noise", LOUD, ids=repr)
def test_a_slow_input_pipeline_is_found_with_its_rank_phase_and_first_step(noise: Noise) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(40):
        choose = random.Random(seed)
        fault = Fault(choose.randrange(4), since=choose.randrange(6, 42), phase="input", delay_ms=80)
        straggler = find_straggler(training(seed, noise=noise, faults=[fault]))
        right = straggler is not None and (straggler.rank, straggler.phase) == (fault.rank, "input")
        outcomes["right" if right and straggler and abs(straggler.since_step - fault.since) <= 3 else "wrong"] += 1

    assert outcomes["right"] >= 38


@pytest.mark.parametrize("phase", ["input", "forward", "optimizer"])
def test_the_phase_is_the_one_with_the_excess(phase: str) -> None:
    straggler = found_in(training(3, noise=QUIET, faults=[replace(LATE_INPUT, phase=phase)]))

    assert (straggler.rank, straggler.phase, straggler.since_step) == (2, phase, 20)
    assert 70 * MS < straggler.phases_ns[phase] < 90 * MS


def test_the_slow_rank_waits_least_and_the_others_lose_what_it_takes_longer() -> None:
    straggler = found_in(training(3, noise=QUIET, faults=[LATE_INPUT]))

    assert min(straggler.waits_ns, key=lambda rank: straggler.waits_ns[rank]) == 2
    assert 60 * MS < straggler.lost_ns < 100 * MS
    assert 0.4 < straggler.share < 0.8
    assert straggler.steps == straggler.charged_steps == 40


def test_a_rank_that_is_slow_from_the_first_step_is_found() -> None:
    straggler = found_in(training(3, noise=QUIET, faults=[replace(LATE_INPUT, since=0)]))

    assert straggler.since_step <= 3


def test_a_rank_that_recovered_is_not_accused() -> None:
    faulty = training(3, noise=QUIET, faults=[LATE_INPUT])
    clean = training(3, noise=QUIET)

    assert find_straggler([row for row in faulty if row.step < 40] + [row for row in clean if row.step >= 40]) is None


def test_a_single_long_stall_is_no_straggler() -> None:
    rows = training(3, noise=QUIET)
    rows = [replace(row, input_ns=5000 * MS) if (row.step, row.rank) == (30, 1) else row for row in rows]

    assert find_straggler(rows) is None


def test_steps_that_a_rank_lacks_are_left_out() -> None:
    rows = [row for row in training(3, noise=QUIET, faults=[LATE_INPUT]) if (row.step, row.rank) != (25, 0)]

    assert found_in(rows).steps == 39


def test_the_order_of_the_rows_does_not_matter() -> None:
    rows = training(3, noise=LOUD[0], faults=[LATE_INPUT])
    shuffled = rows[:]
    random.Random(1).shuffle(shuffled)

    assert find_straggler(shuffled) == find_straggler(rows)


@pytest.mark.parametrize("rows", [[], training(1, noise=QUIET, ranks=1), training(1, noise=QUIET, steps=6)])
def test_too_little_to_judge_gives_nothing(rows: list[StepTimes]) -> None:
    assert find_straggler(rows) is None


def test_durations_of_a_lying_clock_do_not_break_it() -> None:
    rows = [replace(row, backward_ns=-(2**62), total_ns=0) for row in training(1, noise=QUIET)]

    assert find_straggler(rows) is None
