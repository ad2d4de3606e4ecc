"""Any tensor inside a step can be named: its value is looked at there, its gradient when it arrives."""

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from rankscope.probe.attach import attach
from rankscope_proto.names import Role
from tests.agent.probe.trainings import ACTIVATION, Recorded, norm_of

if TYPE_CHECKING:
    from collections.abc import Callable

ACTIVATION_GRAD = Role.ACTIVATION_GRAD.code


class Scored(nn.Module):
    """A layer whose scores no module returns."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 1)])
        self.told: Callable[[str, Tensor], object] = lambda _name, _tensor: None
        self.scores = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self.scores = self.layers[0](x).tanh()
        self.told("layers.0.scores", self.scores)
        return self.layers[1](self.scores)


def trained(recorded: Recorded, **options: Any) -> Scored:
    model = Scored()
    probe = attach(recorded.run, model, every=1, budget=None, **options)
    model.told = probe.tensor
    with recorded.run.step(0):
        loss = model(torch.ones(2, 4)).sum()
        model.scores.retain_grad()
        loss.backward()
    return model


def test_its_value_and_its_gradient_have_the_whole_table_at_level_2(recorded: Recorded) -> None:
    model = trained(recorded, level=2)

    (value,) = recorded.rows("tensor_stats", name="layers.0.scores", role=ACTIVATION)
    (gradient,) = recorded.rows("tensor_stats", name="layers.0.scores", role=ACTIVATION_GRAD)
    assert value["l2"] == pytest.approx(norm_of(model.scores), rel=1e-5)
    assert gradient["l2"] == pytest.approx(norm_of(model.scores.grad), rel=1e-5)
    assert (value["module"], value["layer_index"]) == ("layers.0", 0)
    assert value["mean"] is not None


def test_at_level_1_it_is_checked_for_finiteness_in_every_step(recorded: Recorded) -> None:
    trained(recorded, level=1)

    (value,) = recorded.rows("tensor_stats", name="layers.0.scores")
    assert (value["role"], value["nonfinite_count"], value["l2"]) == (ACTIVATION, 0, None)


def test_the_filters_apply_to_its_name(recorded: Recorded) -> None:
    trained(recorded, level=2, exclude=["*.scores"])

    assert not recorded.rows("tensor_stats", name="layers.0.scores")


def test_outside_of_a_step_and_after_the_end_nothing_happens(recorded: Recorded) -> None:
    model = Scored()
    probe = attach(recorded.run, model, level=2, every=1, budget=None)
    probe.tensor("somewhere", torch.ones(2))
    probe.detach()
    with recorded.run.step(0):
        probe.tensor("somewhere", torch.ones(2))

    assert not recorded.rows("tensor_stats", name="somewhere")


def test_what_is_no_tensor_never_reaches_training(recorded: Recorded) -> None:
    model = Scored()
    probe = attach(recorded.run, model, level=2, every=1, budget=None)
    wrong: Any = "no tensor"
    with recorded.run.step(0):
        probe.tensor("somewhere", wrong)
        model(torch.ones(2, 4)).sum().backward()

    assert not recorded.rows("tensor_stats", name="somewhere")
    assert recorded.rows("tensor_stats", role=ACTIVATION)
