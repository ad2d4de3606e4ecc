"""How far an optimizer moved each weight, and how large a gradient is beside its weight."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rankscope.probe.attach import attach
from rankscope.probe.torch_inner import sample
from rankscope.probe.updates import chosen_rows, flattened
from rankscope_proto.names import TENSOR_FLAGS, Phase, Role
from tests.agent.probe.trainings import GRAD, Criterion, Model, Recorded, Row, batches, norm_of

UPDATE, SAMPLED = Role.UPDATE.code, TENSOR_FLAGS["sampled"]


def whole_ratio(before: Tensor, after: Tensor) -> float:
    return norm_of(after - before) / norm_of(before)


def one_step(recorded: Recorded, model: nn.Module, *optimizers: Optimizer, **options: Any) -> dict[str, float]:
    """Train for a step with each optimizer; returns how far each weight moved, as a share of its norm."""
    criterion = Criterion()
    chosen: dict[str, Any] = {"level": 2, "every": 1, "budget": None, "optimizer": list(optimizers), **options}
    attach(recorded.run, model, loss=criterion, **chosen)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    with recorded.run.step(0):
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()
        for optimizer in optimizers:
            optimizer.step()
    return {
        name: whole_ratio(before[name], each.detach())
        for name, each in model.named_parameters()
        if norm_of(before[name])
    }


def updates(recorded: Recorded) -> dict[str, Row]:
    return {row["name"]: row for row in recorded.rows("tensor_stats", role=UPDATE)}


def test_the_ratio_of_a_small_tensor_is_exact_and_that_of_a_large_one_is_of_a_sample(recorded: Recorded) -> None:
    torch.manual_seed(0)
    model = Model(width=192)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.1)

    expected = one_step(recorded, model, optimizer)

    rows = updates(recorded)
    assert {name: row["flags"] & SAMPLED for name, row in rows.items()} == {
        name: SAMPLED if each.numel() > 256 else 0 for name, each in model.named_parameters()
    }
    assert {row["phase"] for row in rows.values()} == {Phase.OPTIMIZER.code}
    for name, row in rows.items():
        assert row["l2"] is None
        if name in expected:
            tolerance = 0.5 if row["flags"] & SAMPLED else 1e-5
            assert row["update_ratio"] == pytest.approx(expected[name], rel=tolerance)


def test_a_weight_of_zeros_has_no_ratio(recorded: Recorded) -> None:
    model = Model()
    one_step(recorded, model, torch.optim.SGD(model.parameters(), lr=0.1))

    assert updates(recorded)["norm.bias"]["update_ratio"] is None


@pytest.mark.parametrize(
    "make",
    [
        partial(torch.optim.Adam, foreach=True),
        partial(torch.optim.Adam, fused=True),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    ],
    ids=["foreach", "fused", "momentum"],
)
def test_the_whole_difference_is_kept_on_request(
    recorded: Recorded, make: Callable[[list[nn.Parameter]], Optimizer]
) -> None:
    model = Model()

    expected = one_step(recorded, model, make(list(model.parameters())), whole_updates=True)

    rows = updates(recorded)
    assert {name: row["update_ratio"] for name, row in rows.items() if name in expected} == pytest.approx(
        expected, rel=1e-5
    )
    weight = rows["head.weight"]
    assert (weight["flags"] & SAMPLED, sum(weight["log2_hist"])) == (0, weight["numel_local"] - weight["zero_count"])


def test_each_of_several_optimizers_tells_of_its_own_parameters(recorded: Recorded) -> None:
    model = Model()
    head, rest = list(model.head.parameters()), [*model.embed.parameters(), *model.blocks.parameters()]

    expected = one_step(recorded, model, torch.optim.SGD(head, lr=0.1), torch.optim.Adam(rest), whole_updates=True)

    rows = updates(recorded)
    assert {name for name in rows if name.startswith("norm")} == set()
    assert rows["head.weight"]["update_ratio"] == pytest.approx(expected["head.weight"], rel=1e-5)
    assert rows["embed.weight"]["update_ratio"] == pytest.approx(expected["embed.weight"], rel=1e-5)


def test_a_step_that_is_left_out_has_no_update_and_neither_has_level_1(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, loss=criterion, optimizer=optimizer, level=2, every=1, budget=None)
    with recorded.run.step(0):
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()
    one_step(other := Recorded(), Model(), torch.optim.SGD(model.parameters(), lr=0.1), level=1)

    assert not updates(recorded)
    assert not updates(other)


def test_an_optimizer_that_steps_in_backward_is_seen_and_leaves_backward_one_phase(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    optimizers = {each: torch.optim.SGD([each], lr=0.1) for each in model.parameters()}

    def step(each: nn.Parameter) -> None:
        optimizers[each].step()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    before = model.head.weight.detach().clone()
    attach(recorded.run, model, loss=criterion, optimizer=list(optimizers.values()), level=2, every=1, budget=None)
    with recorded.run.step(0):
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    assert updates(recorded)["head.weight"]["update_ratio"] == pytest.approx(
        whole_ratio(before, model.head.weight.detach()), rel=1e-5
    )
    assert "optimizer" not in recorded.phases(0)
    assert recorded.phases(0).count("backward") == 1


def test_a_gradient_row_says_how_large_it_is_beside_its_weight_at_level_2(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, level=2, every=1, budget=None)
    with recorded.run.step(0):
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    (row,) = recorded.rows("tensor_stats", role=GRAD, name="head.weight")
    ratio = norm_of(model.head.weight.grad) / norm_of(model.head.weight)
    assert row["grad_to_weight"] == pytest.approx(ratio, rel=1e-5)


def test_the_sample_is_the_same_for_the_same_name_and_never_more_than_a_hundredth() -> None:
    state = torch.get_rng_state()
    rows = chosen_rows("head.weight", 1_000_000)

    assert torch.equal(rows, chosen_rows("head.weight", 1_000_000))
    assert not torch.equal(rows, chosen_rows("other.weight", 1_000_000))
    assert 16 * rows.numel() <= 10_000
    assert 16 * chosen_rows("head.weight", 257).numel() == 256
    assert bool((rows.diff() > 0).all())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("amount", "below"), [(16, 16), (16, 17), (10, 1_000)])
def test_a_sample_has_as_many_as_were_asked_for(amount: int, below: int) -> None:
    with torch.device("meta"):  # what a program has as its default device is no matter
        chosen = sample(amount, below, seed=1)

    assert chosen.numel() == amount
    assert bool((chosen.diff() > 0).all())
    assert int(chosen.max()) < below


@pytest.mark.parametrize(
    "tensor",
    [torch.randn(4, 6).t(), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)],
    ids=["transposed", "channels_last"],
)
def test_a_tensor_without_gaps_is_flattened_without_a_copy(tensor: Tensor) -> None:
    flat = flattened(tensor)

    assert flat.data_ptr() == tensor.data_ptr()
    assert torch.equal(flat.sort().values, tensor.flatten().sort().values)


def test_losses_and_weights_are_the_same_to_the_bit_with_and_without() -> None:
    ends: list[list[Tensor]] = []
    for is_watched in (False, True):
        torch.manual_seed(7)
        model, criterion, recorded = Model(width=64), Criterion(), Recorded()
        optimizer = torch.optim.Adam(model.parameters())
        if is_watched:
            attach(recorded.run, model, loss=criterion, optimizer=optimizer, level=2, every=1, budget=None)
        for index, (codes, targets) in enumerate(batches(3)):
            with recorded.run.step(index):
                optimizer.zero_grad()
                criterion(model(codes), targets).backward()
                optimizer.step()
        ends.append([each.detach().clone() for each in model.parameters()])
        recorded.run.finish()

    assert all(map(torch.equal, *ends))


def test_where_no_optimizer_is_known_that_updates_are_missing_is_said(recorded: Recorded) -> None:
    attach(recorded.run, Model(), level=2, every=1, budget=None)

    assert [row["cause"] for row in recorded.rows("gaps") if row["detail"].startswith("updates:")] == ["unsupported"]


def test_an_optimizer_that_runs_the_model_itself_is_compared_over_its_whole_step(recorded: Recorded) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    attach(recorded.run, model, optimizer=optimizer, level=2, every=1, budget=None)
    before = model.weight.detach().clone()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.ones(8, 4)).square().sum()
        loss.backward()
        return loss

    with recorded.run.step(0):
        optimizer.step(cast("Any", closure))

    assert updates(recorded)["weight"]["update_ratio"] == pytest.approx(
        whole_ratio(before, model.weight.detach()), rel=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_of_an_update_are_the_difference_whatever_the_order_in_memory(
    recorded: Recorded, dtype: torch.dtype
) -> None:
    model = nn.Linear(30, 20)
    model.weight = nn.Parameter(torch.randn(30, 20, dtype=dtype).t())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    probe = attach(recorded.run, model, optimizer=optimizer, level=0)
    handle = probe.capture(["weight"], roles=[Role.UPDATE])
    before = model.weight.detach().clone().float()

    with recorded.run.step(0):
        model.weight.grad = torch.randn(30, 20, dtype=dtype).t()
        optimizer.step()

    (kept,) = handle.result(1)
    assert torch.equal(cast("Tensor", kept.values()), model.weight.detach().float() - before)
