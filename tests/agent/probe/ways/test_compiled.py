"""A model that the compiler runs: weights, gradients, increments and updates are right, in one graph."""

from typing import Any, cast

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from rankscope.probe.attach import attach
from rankscope_proto.names import Role
from tests.agent.probe.trainings import GRAD, LOCAL, WEIGHT, Criterion, Model, Recorded, batches, norm_of

INCREMENT, UPDATE = Role.GRAD_INCREMENT.code, Role.UPDATE.code


@pytest.mark.parametrize("watches_first", [True, False])
def test_what_is_about_parameters_is_that_of_the_plain_model_and_the_graph_stays_one(
    recorded: Recorded, watches_first: bool
) -> None:
    torch.manual_seed(0)
    model, criterion = Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counter = CompileCounterWithBackend("aot_eager")
    options: dict[str, Any] = {"loss": criterion, "optimizer": optimizer, "level": 2, "every": 1, "budget": None}
    if watches_first:
        attach(recorded.run, model, **options)
    compiled = cast("nn.Module", cast("Any", torch).compile(model, backend=counter))
    if not watches_first:
        attach(recorded.run, compiled, **options)
    data = batches(2)
    weights = {name: norm_of(each) for name, each in model.named_parameters()}
    with recorded.run.step(0):
        for codes, targets in data:
            criterion(compiled(codes), targets).backward()
        totals = {name: norm_of(each.grad) for name, each in model.named_parameters()}
        optimizer.step()

    rows = recorded.rows("tensor_stats")
    told = {
        role: {row["name"]: row["l2"] for row in rows if row["role"] == role and row["microstep"] == microstep}
        for role, microstep in ((WEIGHT, 0), (GRAD, 1), (INCREMENT, 1))
    }
    assert told[WEIGHT] == pytest.approx(weights, rel=1e-5)
    assert told[GRAD] == pytest.approx(totals, rel=1e-4)
    assert set(told[INCREMENT]) == set(totals)
    assert {row["flags"] for row in rows if row["role"] == GRAD} == {LOCAL}
    assert {row["name"] for row in rows if row["role"] == UPDATE} == set(totals)
    assert counter.frame_count == 1


def test_a_tensor_that_is_named_in_compiled_code_costs_no_graph_and_has_no_row(recorded: Recorded) -> None:
    layer = nn.Linear(4, 4)
    probe = attach(recorded.run, layer, level=2, every=1, budget=None)

    def step(x: torch.Tensor) -> torch.Tensor:
        scores = layer(x)
        probe.tensor("scores", scores)
        return scores.sum()

    compiled = cast("Any", torch).compile(step, backend="eager", fullgraph=True)
    with recorded.run.step(0):
        compiled(torch.ones(2, 4)).backward()

    assert not recorded.rows("tensor_stats", name="scores")
    assert recorded.rows("tensor_stats", name="weight", role=GRAD)
