"""Weights and gradients of captured steps, with numbers that are right."""

import math
import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from rankscope.probe.attach import attach
from tests.agent.probe.trainings import (
    GRAD,
    LOCAL,
    WEIGHT,
    Criterion,
    Model,
    Recorded,
    batches,
    linear,
    names,
    norm_of,
    train,
    trained,
)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_weights_and_gradients_are_captured_in_every_nth_step(recorded: Recorded) -> None:
    trained(recorded, Model(), steps=7, every=3)

    assert {row["step"] for row in recorded.rows("tensor_stats", role=GRAD)} == {0, 3, 6}
    assert {row["step"] for row in recorded.rows("tensor_stats", role=WEIGHT)} == {0, 3, 6}
    assert len(recorded.rows("tensor_stats", role=GRAD, step=3)) == len(list(Model().parameters()))


def test_the_numbers_are_those_of_the_tensor(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model)
    with recorded.run.step(0):
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    for name, parameter in model.named_parameters():
        for role, tensor in ((WEIGHT, parameter), (GRAD, parameter.grad)):
            (row,) = recorded.rows("tensor_stats", name=name, role=role)
            assert row["l2"] == pytest.approx(norm_of(tensor), rel=1e-6)
            assert row["absmax"] == pytest.approx(greatest(tensor))
            assert row["nonfinite_count"] == 0


def greatest(tensor: torch.Tensor | None) -> float:
    assert tensor is not None
    return float(tensor.detach().abs().max())


def test_the_weight_is_the_one_the_gradient_belongs_to_not_the_updated_one(recorded: Recorded) -> None:
    model = Model()
    before = norm_of(model.head.weight)

    trained(recorded, model)

    (row,) = recorded.rows("tensor_stats", name="head.weight", role=WEIGHT)
    assert row["l2"] == pytest.approx(before, rel=1e-6)


def test_the_gradient_is_the_one_before_clipping(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model)
    with recorded.run.step(0):
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()
        unclipped = norm_of(model.head.weight.grad)
        nn.utils.clip_grad_norm_(model.parameters(), 1e-6)

    (row,) = recorded.rows("tensor_stats", name="head.weight", role=GRAD)
    assert row["l2"] == pytest.approx(unclipped, rel=1e-6)
    assert row["flags"] == LOCAL


def test_a_gradient_row_says_which_layer_it_is_in(recorded: Recorded) -> None:
    trained(recorded, Model())

    (row,) = recorded.rows("tensor_stats", name="blocks.2.norm.weight", role=GRAD)

    assert (row["module"], row["layer_index"], row["layer_type"]) == ("blocks.2.norm", 2, "norm")


def test_frozen_parameters_are_left_out_until_they_are_unfrozen(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    model.head.weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, every=1)

    for index, _ in enumerate(train(recorded.run, model, batches(3), optimizer=optimizer, criterion=criterion)):
        model.head.weight.requires_grad_(index >= 0)

    assert [row["step"] for row in recorded.rows("tensor_stats", name="head.weight", role=GRAD)] == [1, 2]
    assert len(recorded.rows("tensor_stats", name="head.bias", role=GRAD)) == 3


def test_replaced_parameters_are_found_again(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, every=1)

    for index in range(2):
        model.load_state_dict(Model().state_dict(), assign=True)
        with recorded.run.step(index):
            criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    assert [row["step"] for row in recorded.rows("tensor_stats", name="head.bias", role=GRAD)] == [0, 1]


def test_tied_weights_are_one_tensor_with_an_alias(recorded: Recorded) -> None:
    model = Model()
    model.head.weight = model.embed.weight

    trained(recorded, model)

    assert names(recorded.rows("tensor_stats", role=WEIGHT)).count("embed.weight") == 1
    assert not recorded.rows("tensor_stats", name="head.weight")
    assert recorded.rows("modules", path="embed")[0]["aliases"] == ["head.weight"]


def test_sparse_gradients_are_measured_with_their_implicit_zeros(recorded: Recorded) -> None:
    model = nn.Sequential(nn.Embedding(10, 2, sparse=True), nn.Linear(2, 1))
    attach(recorded.run, model)
    with recorded.run.step(0):
        model(torch.tensor([1, 1, 3])).sum().backward()

    (row,) = recorded.rows("tensor_stats", name="0.weight", role=GRAD)
    assert row["l2"] == pytest.approx(norm_of(model.get_parameter("0.weight").grad), rel=1e-6)
    assert row["shape"] == [10, 2]


def test_an_empty_parameter_has_a_size_and_no_statistic(recorded: Recorded) -> None:
    class Empty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nothing = nn.Parameter(torch.empty(0, 5))
            self.weight = nn.Parameter(torch.ones(5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.weight).sum() + self.nothing.sum()

    model = Empty()
    attach(recorded.run, model)
    with recorded.run.step(0):
        model(torch.ones(5)).backward()

    (row,) = recorded.rows("tensor_stats", name="nothing", role=WEIGHT)
    assert (row["numel_local"], row["nonfinite_count"], row["l2"], row["absmax"]) == (0, None, None, None)


def test_gradients_that_training_sets_itself_are_said_to_be_missing_once(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, every=1, budget=None)
    for index, (codes, targets) in enumerate(batches(2)):
        with recorded.run.step(index):
            found = torch.autograd.grad(criterion(model(codes), targets), list(model.parameters()))
            for parameter, gradient in zip(model.parameters(), found, strict=True):
                parameter.grad = gradient

    assert not recorded.rows("tensor_stats", role=GRAD)
    details = [row["detail"] for row in recorded.rows("gaps", cause="unsupported")]
    amount = len(list(model.parameters()))
    assert [
        detail for detail in details if detail.startswith(f"gradients of {amount} parameters, such as embed.weight")
    ]
    assert sum(detail.startswith("gradients of") for detail in details) == 1


@pytest.mark.parametrize("set_to_none", [True, False])
def test_of_a_parameter_that_gets_no_gradient_none_is_missing(recorded: Recorded, set_to_none: bool) -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 2), "unused": nn.Linear(2, 2)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, every=1, budget=None)
    model["unused"](torch.ones(1, 2)).sum().backward()
    for index in range(2):
        with recorded.run.step(index):
            if index:
                optimizer.zero_grad(set_to_none=set_to_none)
            model["used"](torch.ones(1, 2)).sum().backward()

    assert not [row for row in recorded.rows("gaps") if row["detail"].startswith("gradients of")]


@pytest.mark.parametrize("value", [1e30, 1e-30])
def test_a_norm_beyond_the_range_of_float32_squares_is_right(recorded: Recorded, value: float) -> None:
    model = nn.ModuleList([nn.Linear(4, 1, bias=False)])
    with torch.no_grad():
        linear(model, "0").weight.fill_(value)
    attach(recorded.run, model)
    with recorded.run.step(0) as step:
        loss = linear(model, "0")(torch.ones(1, 4)).sum()
        step.loss(loss)
        loss.backward()

    (row,) = recorded.rows("tensor_stats", name="0.weight", role=WEIGHT)
    assert row["nonfinite_count"] == 0
    assert row["l2"] == pytest.approx(2 * value, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_other_element_types_are_measured(recorded: Recorded, dtype: torch.dtype) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((1000,), 60.0, dtype=dtype))

        def forward(self) -> torch.Tensor:
            return (self.weight * 1.0).abs().float().sum()

    model = Scale()
    attach(recorded.run, model)
    with recorded.run.step(0):
        model().backward()

    (row,) = recorded.rows("tensor_stats", name="weight", role=WEIGHT)
    assert row["dtype"] == str(dtype).removeprefix("torch.")
    assert row["absmax"] == 60.0
    assert row["l2"] == pytest.approx(60.0 * math.sqrt(1000), rel=1e-6)


def broken(_gradient: torch.Tensor) -> torch.Tensor:
    return torch.tensor([[3.0, float("nan"), float("-inf")]])


def test_norms_of_a_gradient_with_nonfinite_elements_are_of_the_finite_ones(recorded: Recorded) -> None:
    model = nn.ModuleList([nn.Linear(3, 1, bias=False)])
    attach(recorded.run, model)
    with recorded.run.step(0) as step:
        loss = linear(model, "0")(torch.ones(1, 3)).sum()
        step.loss(loss)
        linear(model, "0").weight.register_hook(broken)
        loss.backward()

    (row,) = recorded.rows("tensor_stats", name="0.weight", role=GRAD)
    assert (row["nonfinite_count"], row["nan_count"], row["inf_count"]) == (2, 1, 1)
    assert (row["l2"], row["absmax"]) == (3.0, 3.0)


def test_where_another_hook_may_use_gradients_up_they_are_measured_before_it(recorded: Recorded) -> None:
    model, kept = Model(), dict[str, float]()

    def use_up(used: nn.Parameter) -> None:
        kept["l2"] = norm_of(used.grad)
        used.grad = None

    attach(recorded.run, model)
    with recorded.run.step(0):
        model.head.weight.register_post_accumulate_grad_hook(use_up)
        Criterion()(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    (row,) = recorded.rows("tensor_stats", name="head.weight", role=GRAD)
    assert row["l2"] == pytest.approx(kept["l2"], rel=1e-6)


def test_gradients_that_wait_for_the_end_of_a_backward_that_fails_are_measured_unless_rewritten(
    recorded: Recorded,
) -> None:
    model, code = Model(), batches(1)[0][0]
    attach(recorded.run, model)

    def fail(gradient: torch.Tensor) -> None:
        raise RuntimeError("out of memory")

    with recorded.run.step(0):
        scores = model(code)
        model.embed.weight.register_hook(fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            scores.sum().backward()
        assert model.norm.weight.grad is not None
        model.norm.weight.grad.zero_()

    rows = recorded.rows("tensor_stats", role=GRAD)
    assert "head.weight" in names(rows)
    assert not {"norm.weight", "embed.weight"} & set(names(rows))


@pytest.mark.parametrize("level", [1, 2])
def test_gradients_of_a_backward_in_inference_mode_are_measured_and_training_goes_on(
    recorded: Recorded, level: int
) -> None:
    model = nn.Linear(4, 4)
    probe = attach(recorded.run, model, level=level, every=1, budget=None)

    for index in range(4):
        with recorded.run.step(index):
            model.zero_grad()
            loss = model(torch.ones(2, 4)).sum()
            with torch.inference_mode():
                loss.backward()

    found = [row["l2"] for row in recorded.rows("tensor_stats", name="weight", role=GRAD)]
    assert found == pytest.approx([norm_of(model.weight.grad)] * 4)
    assert probe.watch.guard.failures == 0


def test_where_ranks_may_reduce_each_gradient_is_measured_in_its_hook(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    model = Model()

    def rewrite(_: nn.Parameter) -> None:
        assert model.head.weight.grad is not None
        model.head.weight.grad.mul_(2)  # as an all-reduce does, during backward

    attach(recorded.run, model)

    with recorded.run.step(0):
        loss = Criterion()(model(batches(1)[0][0]), batches(1)[0][1])
        model.embed.weight.register_post_accumulate_grad_hook(rewrite)
        loss.backward()

    (row,) = recorded.rows("tensor_stats", name="head.weight", role=GRAD)
    assert row["l2"] == pytest.approx(norm_of(model.head.weight.grad) / 2, rel=1e-6)


class Narrow(nn.Module):
    """A layer whose weight has eight bits an element."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-2, 2, 12).reshape(3, 4).to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.float().t()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("level", [1, 2])
def test_parameters_of_eight_bits_have_the_numbers_of_what_they_stand_for(
    recorded: Recorded, dtype: torch.dtype, level: int
) -> None:
    model = nn.Sequential(Narrow(dtype))
    probe = attach(recorded.run, model, level=level, every=1, budget=None)
    with recorded.run.step(0):
        model(torch.randn(5, 4)).square().sum().backward()

    (parameter,) = model.parameters()
    rows = {row["role"]: row for row in recorded.rows("tensor_stats", name="0.weight")}
    assert rows[WEIGHT]["dtype"] == rows[GRAD]["dtype"] == str(dtype).removeprefix("torch.")
    assert rows[WEIGHT]["l2"] == pytest.approx(norm_of(parameter.double()))
    assert parameter.grad is not None
    assert rows[GRAD]["l2"] == pytest.approx(norm_of(parameter.grad.double()))
    assert probe.watch.guard.failures == 0
