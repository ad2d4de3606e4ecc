"""The budget compares captured steps with others, and only ever captures less often."""

import random

import pytest

from rankscope.probe.budget import ENOUGH, SHADOW, Budget

STEP_NS = 300_000_000


def run(budget: Budget, *, steps: int, cost: float, noise: float = 0.01, seed: int = 0) -> list[int]:
    """Train `steps` steps in which capturing costs a share of the step; gives the steps captured."""
    chance = random.Random(seed)
    captured: list[int] = []
    for step in range(steps):
        is_captured = budget.captures(step)
        duration = STEP_NS * (1 + chance.gauss(0, noise) + (cost if is_captured else 0.0))
        budget.took(int(duration), captured=is_captured)
        captured += [step] * is_captured
    return captured


def test_a_cost_within_the_budget_leaves_the_stride_as_it_was_asked_for() -> None:
    budget = Budget(10, 0.02)

    assert run(budget, steps=2_000, cost=0.15) == list(range(0, 2_000, 10))


def test_a_cost_above_the_budget_doubles_the_stride_until_it_holds() -> None:
    budget = Budget(10, 0.02)

    run(budget, steps=4_000, cost=0.7)

    assert budget.stride == 40
    assert budget.cost == pytest.approx(0.7 / 40, rel=0.2)


def test_noise_alone_never_changes_the_stride() -> None:
    for seed in range(20):
        budget = Budget(10, 0.02)

        run(budget, steps=2_000, cost=0.0, noise=0.3, seed=seed)

        assert budget.stride == 10


def test_where_every_step_is_captured_a_few_are_left_out_to_compare_with() -> None:
    captured = run(Budget(1, 0.5), steps=160, cost=0.1)

    assert sorted(set(range(160)) - set(captured)) == list(range(SHADOW - 1, 160, SHADOW))


def test_without_a_budget_every_step_is_captured_and_nothing_is_left_out() -> None:
    assert run(Budget(1, None), steps=160, cost=5.0) == list(range(160))


def test_a_rank_that_captures_less_often_captures_steps_that_the_others_capture() -> None:
    cheap, dear = Budget(3, 0.02), Budget(3, 0.02)

    of_both = run(cheap, steps=3_000, cost=0.01), run(dear, steps=3_000, cost=0.5)

    assert dear.stride > cheap.stride
    assert set(of_both[1]) < set(of_both[0])


def test_the_cost_is_not_told_before_it_is_known() -> None:
    budget = Budget(1, 0.02)

    run(budget, steps=ENOUGH, cost=0.1)

    assert budget.cost is None
