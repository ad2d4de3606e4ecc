"""Hooks on modules are on where something is looked at, and nowhere else."""

from typing import cast

import pytest
import torch
from torch import nn

from rankscope.probe.attach import attach
from rankscope_proto.names import Role
from tests.agent.probe.trainings import ACTIVATION, Recorded


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


def hooks_on(module: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks")
    return sum(len(cast("dict[int, object]", vars(module)[kind])) for kind in kinds)


def test_evaluation_outside_of_steps_runs_without_hooks_and_the_next_step_has_them_again(recorded: Recorded) -> None:
    layers = model()
    attach(recorded.run, layers, level=1, every=1, budget=None)
    inside: list[int] = []
    for step in range(2):
        with recorded.run.step(step):
            inside.append(hooks_on(layers[0]))
            layers(torch.ones(1, 2)).sum().backward()

        with torch.no_grad():
            layers(torch.ones(1, 2))
        assert hooks_on(layers[0]) == 0

    assert inside == [1, 1]
    assert [row["step"] for row in recorded.rows("tensor_stats", name="0")] == [0, 1]


def test_steps_that_look_at_no_output_have_no_hooks(recorded: Recorded) -> None:
    layers = model()
    attach(recorded.run, layers, level=2, every=2, budget=None, roles=(Role.ACTIVATION_GRAD,))
    inside: list[int] = []
    for step in range(4):
        with recorded.run.step(step):
            inside.append(hooks_on(layers[0]))
            layers(torch.ones(1, 2)).sum().backward()

    assert inside == [1, 0, 1, 0]
    assert {row["step"] for row in recorded.rows("tensor_stats", name="0")} == {0, 2}


def test_hooks_that_begin_spans_are_on_in_captured_steps_alone(recorded: Recorded) -> None:
    layers = model()
    attach(recorded.run, layers, level=2, every=2, budget=None)
    inside: list[int] = []
    for step in range(4):
        with recorded.run.step(step):
            inside.append(hooks_on(layers[0]))
            layers(torch.ones(1, 2)).sum().backward()

    assert inside == [2, 1, 2, 1]


@pytest.mark.parametrize("is_off", [False, True], ids=["while ours is on", "while ours is off"])
@pytest.mark.parametrize("level", [1, 2])
def test_an_output_is_seen_before_a_hook_that_came_later_changes_it_in_every_step(
    recorded: Recorded, level: int, is_off: bool
) -> None:
    layers, inputs = model(), torch.ones(1, 2)
    attach(recorded.run, layers, level=level, every=2, budget=None, include=["0"])
    for step in range(5):
        if step == int(is_off):
            layers[0].register_forward_hook(poisoned)
        with recorded.run.step(step):
            layers(inputs)
        with torch.no_grad():
            layers(inputs)

    rows = recorded.rows("tensor_stats", name="0", role=ACTIVATION)
    assert [row["nonfinite_count"] for row in rows] == [0] * 5


def poisoned(_module: nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
    return output / 0
