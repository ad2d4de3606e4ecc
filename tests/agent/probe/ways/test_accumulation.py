"""Gradients that are accumulated: what a microstep added, and what is there in all."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils import checkpoint as checkpointing

from rankscope.probe.attach import attach
from rankscope_proto.names import Role
from tests.agent.probe.trainings import GRAD, LOCAL, Criterion, Model, Recorded, batches, hook_count, norm_of

INCREMENT = Role.GRAD_INCREMENT.code


def increments(model: nn.Module, count: int) -> Iterator[dict[str, float]]:
    """Norms of the gradients of each batch alone."""
    for codes, targets in batches(count):
        loss: Tensor = Criterion()(model(codes), targets)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        names = [name for name, _ in model.named_parameters()]
        yield {name: norm_of(gradient) for name, gradient in zip(names, gradients, strict=True)}


def found(recorded: Recorded, role: int, *, microstep: int) -> dict[str, float]:
    rows = recorded.rows("tensor_stats", role=role, microstep=microstep)
    assert {row["flags"] for row in rows} <= {LOCAL}
    return {row["name"]: row["l2"] for row in rows}


@pytest.mark.parametrize("level", [1, 2])
def test_an_increment_is_the_microstep_alone_and_the_gradient_is_the_running_total(
    recorded: Recorded, level: int
) -> None:
    model, criterion = Model(), Criterion()
    alone, totals = list(increments(model, 3)), list[dict[str, float]]()
    attach(recorded.run, model, loss=criterion, level=level, every=1, budget=None)
    with recorded.run.step(0):
        for codes, targets in batches(3):
            criterion(model(codes), targets).backward()
            totals.append({name: norm_of(each.grad) for name, each in model.named_parameters()})

    assert found(recorded, INCREMENT, microstep=0) == {}
    for microstep in range(3):
        assert found(recorded, GRAD, microstep=microstep) == pytest.approx(totals[microstep], rel=1e-5)
    for microstep in (1, 2):
        assert found(recorded, INCREMENT, microstep=microstep) == pytest.approx(alone[microstep], rel=1e-4)


def test_microsteps_that_are_steps_of_their_own_have_their_increments(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    alone = list(increments(model, 2))
    attach(recorded.run, model, loss=criterion, every=1, budget=None)
    for index, (codes, targets) in enumerate(batches(2)):
        with recorded.run.step(0, microstep=index):
            criterion(model(codes), targets).backward()

    assert found(recorded, INCREMENT, microstep=0) == {}
    assert found(recorded, INCREMENT, microstep=1) == pytest.approx(alone[1], rel=1e-4)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_without_accumulation_there_is_no_increment(recorded: Recorded, set_to_none: bool) -> None:
    model, criterion = Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, loss=criterion, every=1, budget=None)
    for index, (codes, targets) in enumerate(batches(3)):
        with recorded.run.step(index):
            optimizer.zero_grad(set_to_none=set_to_none)
            criterion(model(codes), targets).backward()
            optimizer.step()

    assert len(recorded.rows("tensor_stats", role=GRAD, name="head.bias")) == 3
    assert not recorded.rows("tensor_stats", role=INCREMENT)


def test_no_hook_is_left_on_a_parameter_after_the_step(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, every=1, budget=None)
    with recorded.run.step(0):
        for codes, targets in batches(2):
            criterion(model(codes), targets).backward()

    assert hook_count(*model.parameters()) == 0
    assert not any(parameter._backward_hooks for parameter in model.parameters())


class Shared(nn.Module):
    """A layer that is used inside a checkpoint and again outside of it."""

    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        inner = cast("Any", checkpointing).checkpoint(self.layer, x, use_reentrant=self.use_reentrant)
        return self.layer(inner)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_layer_shared_with_a_checkpoint_has_one_gradient_the_whole(recorded: Recorded, use_reentrant: bool) -> None:
    model = Shared(use_reentrant=use_reentrant)
    attach(recorded.run, model, every=1, budget=None)
    x = torch.randn(3, 4, requires_grad=True)
    with recorded.run.step(0):
        model(x).sum().backward()
        first = norm_of(model.layer.weight.grad)
        model(x).sum().backward()

    rows = recorded.rows("tensor_stats", role=GRAD, name="layer.weight")
    assert [row["l2"] for row in rows] == pytest.approx([first, 2 * first], rel=1e-5)
    whole = recorded.rows("tensor_stats", role=INCREMENT, name="layer.weight")
    assert [row["l2"] for row in whole] == pytest.approx([] if use_reentrant else [first], rel=1e-5)


def test_sparse_gradients_have_their_increments_too(recorded: Recorded) -> None:
    layer = nn.Embedding(10, 2, sparse=True)
    attach(recorded.run, layer, level=2, every=1, budget=None)
    with recorded.run.step(0):
        layer(torch.tensor([1, 1, 3])).sum().backward()
        layer(torch.tensor([1, 2])).sum().backward()

    assert found(recorded, INCREMENT, microstep=1) == pytest.approx({"weight": 2.0}, rel=1e-6)
    assert found(recorded, GRAD, microstep=1) == pytest.approx({"weight": norm_of(layer.weight.grad)}, rel=1e-6)
