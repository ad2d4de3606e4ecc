"""In every step, at level 1, the first layer with a non-finite output can be named."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils import checkpoint as checkpointing

from rankscope.probe.attach import attach
from tests.agent.probe.trainings import (
    ACTIVATION,
    BACKWARD,
    FORWARD,
    GRAD,
    LAYERS,
    LOCAL,
    WEIGHT,
    Criterion,
    Model,
    Recorded,
    Row,
    batches,
    linear,
    names,
    train,
    trained,
)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def train_with_overflow(recorded: Recorded, *, step: int, block: int, steps: int, every: int = 100) -> None:
    model, criterion = Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # the fault must not spoil the weights
    attach(recorded.run, model, optimizer=optimizer, loss=criterion, every=every)
    for index, (codes, targets) in enumerate(batches(steps)):
        model.overflow(block, on=index == step)
        with recorded.run.step(index):
            optimizer.zero_grad()
            criterion(model(codes), targets).backward()


def test_every_layer_and_the_loss_have_a_row_in_every_step(recorded: Recorded) -> None:
    trained(recorded, Model(), steps=3)

    for step in range(3):
        rows = recorded.rows("tensor_stats", step=step, role=ACTIVATION)
        assert names(rows) == [*LAYERS, "loss"]
        assert {row["phase"] for row in rows} == {FORWARD}
        assert {row["nonfinite_count"] for row in rows} == {0}


def test_a_finiteness_row_says_where_the_tensor_is_from(recorded: Recorded) -> None:
    trained(recorded, Model())

    (row,) = recorded.rows("tensor_stats", name="blocks.1")

    assert (row["module"], row["layer_index"], row["dtype"], row["shape"]) == ("blocks.1", 1, "float32", [4, 5, 8])
    assert row["numel_local"] == row["numel_global"] == 160
    assert row["l2"] is row["absmax"] is None


def test_the_layer_in_which_values_overflowed_is_the_first_nonfinite_row(recorded: Recorded) -> None:
    train_with_overflow(recorded, step=2, block=1, steps=4)

    bad = [row for row in recorded.rows("tensor_stats") if row["nonfinite_count"]]
    first = min(bad, key=lambda row: row["time"])

    assert (first["step"], first["name"], first["phase"]) == (2, "blocks.1", FORWARD)
    assert names(bad)[:5] == ["blocks.1", "blocks.2", "norm", "head", "loss"]
    assert {row["step"] for row in bad} == {2}


def test_nan_and_infinite_elements_are_counted_exactly(recorded: Recorded) -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Identity(), nn.Linear(1, 1))
    attach(recorded.run, model)
    bad = torch.tensor([[1.0], [float("inf")], [float("-inf")], [float("nan")]])

    with torch.no_grad(), recorded.run.step(0):
        model(bad)

    (row,) = recorded.rows("tensor_stats", name="0")
    assert (row["nonfinite_count"], row["nan_count"], row["inf_count"]) == (3, 1, 2)


def test_large_finite_values_whose_sum_overflows_are_finite(recorded: Recorded) -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1))
    attach(recorded.run, model)

    with torch.no_grad(), recorded.run.step(0):
        linear(model, "0").weight.fill_(1.0)
        model(torch.full((9, 1), 3e38))

    (row,) = recorded.rows("tensor_stats", name="0")
    assert row["nonfinite_count"] == 0


def test_the_step_of_a_nonfinite_value_also_tells_its_gradients_and_weights(recorded: Recorded) -> None:
    train_with_overflow(recorded, step=2, block=1, steps=5)

    gradients = recorded.rows("tensor_stats", step=2, role=GRAD, flags=LOCAL)
    bad = {row["name"] for row in gradients if row["nonfinite_count"]}

    assert len(gradients) == len(list(Model().parameters()))
    assert "embed.weight" in bad
    assert recorded.rows("tensor_stats", step=2, role=WEIGHT)


def test_the_step_after_a_nonfinite_value_is_captured_in_full_and_the_next_is_not(recorded: Recorded) -> None:
    train_with_overflow(recorded, step=2, block=1, steps=6)

    captured = {row["step"] for row in recorded.rows("tensor_stats", role=GRAD)}

    assert captured == {0, 2, 3}


def test_a_run_that_stays_nonfinite_is_not_captured_in_full_for_ever(recorded: Recorded) -> None:
    model = Model()
    model.overflow(0, on=True)

    trained(recorded, model, steps=12, every=100)

    assert len({row["step"] for row in recorded.rows("tensor_stats", role=GRAD)}) <= 4
    assert len({row["step"] for row in recorded.rows("tensor_stats", name="loss")}) == 12


def test_a_nonfinite_loss_alone_is_seen(recorded: Recorded) -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    attach(recorded.run, model, every=100)

    for index in range(2):
        with recorded.run.step(index) as step:
            loss = model(torch.ones(1, 2)).sum() * (float("inf") if index else 1.0)
            step.loss(loss)
            loss.backward()

    assert [row["nonfinite_count"] for row in recorded.rows("tensor_stats", name="loss")] == [0, 1]
    assert {row["step"] for row in recorded.rows("tensor_stats", role=GRAD)} == {0, 1}


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_layer_is_recorded_once(recorded: Recorded, use_reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = cast("Any", checkpointing).checkpoint(layer, x, use_reentrant=use_reentrant)
            return x

    model = Checkpointed()
    attach(recorded.run, model)
    with recorded.run.step(0):
        model(torch.ones(1, 2, requires_grad=True)).sum().backward()

    assert names(recorded.rows("tensor_stats", role=ACTIVATION)) == ["layers.0", "layers.1"]
    assert recorded.phases(0) == ["forward", "backward"]


@dataclass
class Output:
    """A model output as a dataclass."""

    hidden: Tensor
    count: int


def same(x: Tensor) -> object:
    return x


def in_a_tuple(x: Tensor) -> object:
    return x, x


def in_a_dict(x: Tensor) -> object:
    return {"a": x, "b": [3, x]}


def in_a_dataclass(x: Tensor) -> object:
    return Output(x, 3)


def as_booleans(x: Tensor) -> object:
    return x > 0


@pytest.mark.parametrize(
    ("wrap", "expected"),
    [
        (same, ["0"]),
        (in_a_tuple, ["0[0]", "0[1]"]),
        (in_a_dict, ["0[0]", "0[1][1]"]),
        (in_a_dataclass, ["0[0]"]),
        (as_booleans, []),
    ],
)
def test_tensors_are_found_in_any_usual_output(
    recorded: Recorded, wrap: Callable[[Tensor], object], expected: list[str]
) -> None:
    class Wrapping(nn.Linear):
        def forward(self, input: Tensor) -> object:  # type: ignore[override]  # noqa: A002 - torch's name
            return wrap(super().forward(input))

    model = nn.ModuleList([Wrapping(1, 1)])
    attach(recorded.run, model)
    with recorded.run.step(0):
        model[0](torch.ones(1, 1))

    assert names(recorded.rows("tensor_stats")) == expected


def test_the_filters_choose_what_is_captured(recorded: Recorded) -> None:
    trained(recorded, Model(), include=["blocks.*"], exclude=["*.norm.*"])

    found = {row["name"] for row in recorded.rows("tensor_stats")} - {"loss"}

    assert found == {
        *(f"blocks.{block}" for block in range(3)),
        *(f"blocks.{block}.linear.{name}" for block in range(3) for name in ("weight", "bias")),
    }


def test_what_is_not_captured_is_stated_once(recorded: Recorded) -> None:
    trained(recorded, Model(), steps=4, every=3)

    gaps = recorded.rows("gaps")

    assert [(row["class"], row["cause"], row["step_stride"]) for row in gaps] == [(2, "level", None), (2, "sampled", 3)]


def test_an_output_that_cannot_be_measured_is_named_once(recorded: Recorded) -> None:
    class Nested(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
            return torch.nested.nested_tensor([input[0], input[0]], layout=torch.jagged)

    model = nn.ModuleList([Nested(1, 1)])
    attach(recorded.run, model)
    for index in range(2):
        with recorded.run.step(index):
            model[0](torch.ones(1, 1))

    details = [row["detail"] for row in recorded.rows("gaps", cause="unsupported")]
    assert details == ["0: nested tensor is not measured"]


def test_microsteps_are_told_apart(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion)

    for microstep in range(2):
        with recorded.run.step(0, microstep=microstep):
            criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    def of(row: Row) -> tuple[int, int]:
        return row["microstep"], row["phase"]

    assert {of(row) for row in recorded.rows("tensor_stats")} == {
        (0, FORWARD),
        (0, BACKWARD),
        (1, FORWARD),
        (1, BACKWARD),
    }


def test_two_backwards_in_one_step_are_two_microsteps(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, optimizer=optimizer, loss=criterion)

    with recorded.run.step(0):
        for codes, targets in batches(2):
            criterion(model(codes), targets).backward()

    gradients = recorded.rows("tensor_stats", role=GRAD, name="head.bias")
    assert [row["microstep"] for row in gradients] == [0, 1]
    assert len(recorded.rows("tensor_stats", role=WEIGHT, name="head.bias")) == 1


def test_integers_and_a_plain_training_loop_leave_no_trace_of_failure(recorded: Recorded) -> None:
    watch = trained(recorded, Model(), steps=2)

    assert watch.watch.guard.failures == 0
    assert recorded.run.faults == {}
    assert (
        list(train(recorded.run, Model(), [], optimizer=torch.optim.SGD([torch.ones(1)]), criterion=Criterion())) == []
    )
