"""A watch says in the run's data what it costs, as a share of step time."""

import math

import pytest
import torch

from rankscope.probe import cost
from rankscope.probe.attach import attach
from tests.agent.probe.trainings import Criterion, Model, Recorded, batches, train


@pytest.mark.parametrize(("level", "every"), [(0, 1), (1, 4), (2, 1)])
def test_the_cost_is_a_metric_of_the_run(level: int, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "TOLD_EVERY", 20)
    monkeypatch.setattr(cost, "ENOUGH", 1)
    recorded, model, criterion = Recorded(), Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    probe = attach(recorded.run, model, loss=criterion, level=level, every=every, budget=1.0)

    list(train(recorded.run, model, batches(16 * 9), optimizer=optimizer, criterion=criterion))

    values = [row["value"] for row in recorded.rows("scalars", name="rankscope.probe.cost")]
    assert values
    assert all(0 < value < math.inf for value in values)
    assert probe.watch.guard.failures == 0


def test_a_step_left_out_to_compare_with_is_a_gap() -> None:
    recorded, model, criterion = Recorded(), Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, loss=criterion, level=1, every=1, budget=1.0)

    list(train(recorded.run, model, batches(40), optimizer=optimizer, criterion=criterion))

    gaps = recorded.rows("gaps", cause="budget")
    assert [(row["step_from"], row["step_to"]) for row in gaps] == [(15, 15), (31, 31)]


def test_a_step_left_out_is_one_gap_however_many_microsteps_it_has() -> None:
    recorded, model, criterion = Recorded(), Model(), Criterion()
    attach(recorded.run, model, loss=criterion, level=1, every=1, budget=1.0)
    codes, targets = batches(1)[0]

    for step in (14, 15, 16):
        for microstep in range(3):
            with recorded.run.step(step, microstep=microstep):
                criterion(model(codes), targets).backward()

    gaps = recorded.rows("gaps", cause="budget")
    assert [(row["step_from"], row["step_to"]) for row in gaps] == [(15, 15)]
