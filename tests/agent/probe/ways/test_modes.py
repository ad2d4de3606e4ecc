"""Precision, checkpoints, modes, threads, copies and processes: what is told is right, and told once."""

import copy
import io
import threading
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils import checkpoint as checkpointing
from torch.utils.data import DataLoader, Dataset

from rankscope.probe.attach import attach
from rankscope_proto.names import Role
from tests.agent.probe.trainings import ACTIVATION, GRAD, WEIGHT, Criterion, Model, Recorded, batches, norm_of, trained

ACTIVATION_GRAD, UPDATE = Role.ACTIVATION_GRAD.code, Role.UPDATE.code
DEEP: dict[str, Any] = {"level": 2, "every": 1, "budget": None}


def test_under_autocast_outputs_have_the_narrow_type_and_gradients_that_of_the_weight(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, **DEEP)
    with recorded.run.step(0), torch.autocast("cpu", dtype=torch.bfloat16):
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    (output,) = recorded.rows("tensor_stats", name="head", role=ACTIVATION)
    (gradient,) = recorded.rows("tensor_stats", name="head.weight", role=GRAD)
    assert (output["dtype"], gradient["dtype"]) == ("bfloat16", "float32")
    assert gradient["l2"] == pytest.approx(norm_of(model.head.weight.grad), rel=1e-5)
    assert gradient["loss_scale"] is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_of_a_narrow_type_have_their_numbers_and_their_update(
    recorded: Recorded, dtype: torch.dtype
) -> None:
    model = Model().to(dtype)
    criterion, optimizer = Criterion(), torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, loss=criterion, optimizer=optimizer, **DEEP)
    before = model.head.weight.detach().clone()
    with recorded.run.step(0):
        criterion(model(batches(1)[0][0]).float(), batches(1)[0][1]).backward()
        gradient = norm_of(model.head.weight.grad)
        optimizer.step()

    rows = {row["role"]: row for row in recorded.rows("tensor_stats", name="head.weight")}
    moved = norm_of(model.head.weight.detach().double() - before.double()) / norm_of(before)
    assert rows[WEIGHT]["l2"] == pytest.approx(norm_of(before), rel=1e-5)
    assert rows[GRAD]["l2"] == pytest.approx(gradient, rel=1e-5)
    assert rows[UPDATE]["update_ratio"] == pytest.approx(moved, rel=1e-5)


class Checkpointed(nn.Module):
    """Two blocks under a checkpoint."""

    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = cast("Any", checkpointing).checkpoint(block, x, use_reentrant=self.use_reentrant)
        return x


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_what_a_checkpoint_computes_again_is_told_once(recorded: Recorded, use_reentrant: bool) -> None:
    torch.manual_seed(0)
    model, plain = Checkpointed(use_reentrant=use_reentrant), Recorded()
    attach(recorded.run, model, **DEEP)
    unchecked = nn.ModuleList(copy.deepcopy(block) for block in model.blocks)
    twin = nn.Sequential(*unchecked)
    attach(plain.run, twin, **DEEP)
    for run, of_run in ((recorded.run, model), (plain.run, twin)):
        with run.step(0):
            of_run(torch.ones(2, 4, requires_grad=True)).square().sum().backward()

    for role in (ACTIVATION, GRAD, WEIGHT):
        names = [str(row["name"]) for row in recorded.rows("tensor_stats", role=role)]
        assert len(names) == len(set(names))
        told = {row["name"].removeprefix("blocks."): row["l2"] for row in recorded.rows("tensor_stats", role=role)}
        expected = {row["name"]: row["l2"] for row in plain.rows("tensor_stats", role=role)}
        assert told == pytest.approx(
            {name: told[name] if name == "" else l2 for name, l2 in expected.items()}, rel=1e-5
        )
    arrived = [row["name"] for row in recorded.rows("tensor_stats", role=ACTIVATION_GRAD)]
    assert len(arrived) == len(set(arrived))
    if not use_reentrant:
        assert set(arrived) == {"blocks.0", "blocks.1"}


@dataclass
class Answer:
    """What a language model gives back."""

    scores: Tensor
    loss: Tensor


class Answering(nn.Module):
    """Takes keywords and gives a dataclass back, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Model()

    def forward(self, *, codes: Tensor, labels: Tensor) -> Answer:
        scores = self.inner(codes)
        return Answer(scores, Criterion()(scores, labels))


def test_a_model_of_keywords_that_gives_a_dataclass_back_has_gradients_and_phases(recorded: Recorded) -> None:
    model = Answering()
    attach(recorded.run, model, **DEEP)
    codes, targets = batches(1)[0]
    with recorded.run.step(0):
        answer: Answer = model(codes=codes, labels=targets)
        answer.loss.backward()

    (gradient,) = recorded.rows("tensor_stats", name="inner.head.weight", role=GRAD)
    assert gradient["l2"] == pytest.approx(norm_of(model.inner.head.weight.grad), rel=1e-5)
    assert {"forward", "backward"} <= set(recorded.phases(0))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_evaluation_inside_a_step_leaves_the_gradients_as_they_are(recorded: Recorded, mode: Any) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, **DEEP)
    codes, targets = batches(1)[0]
    with recorded.run.step(0):
        criterion(model(codes), targets).backward()
        model.eval()
        with mode():
            criterion(model(codes), targets)
        model.train()

    (gradient,) = recorded.rows("tensor_stats", name="head.weight", role=GRAD)
    assert gradient["l2"] == pytest.approx(norm_of(model.head.weight.grad), rel=1e-5)
    assert not [row for row in recorded.rows("gaps") if "switched off" in row["detail"]]


def test_after_a_forward_that_raised_the_next_step_is_right(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, **DEEP)
    codes, targets = batches(1)[0]
    with pytest.raises(IndexError), recorded.run.step(0):
        model(codes + 100)
    with recorded.run.step(1):
        criterion(model(codes), targets).backward()

    gradients = recorded.rows("tensor_stats", role=GRAD)
    assert [row["step"] for row in gradients if row["name"] == "head.weight"] == [1]


def test_a_backward_on_a_thread_of_its_own_is_told_like_any_other(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, **DEEP)
    with recorded.run.step(0):
        loss: Tensor = criterion(model(batches(1)[0][0]), batches(1)[0][1])

        def run() -> None:
            loss.backward()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    (gradient,) = recorded.rows("tensor_stats", name="head.weight", role=GRAD)
    assert gradient["l2"] == pytest.approx(norm_of(model.head.weight.grad), rel=1e-5)
    assert recorded.rows("tensor_stats", name="head", role=ACTIVATION_GRAD)


def test_copies_and_files_made_in_a_captured_step_carry_no_hook(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, **DEEP)
    codes, targets = batches(1)[0]
    with recorded.run.step(0):
        twin, file = copy.deepcopy(model), io.BytesIO()
        torch.save(model, file)
        torch.save(model.state_dict(), io.BytesIO())
        file.seek(0)
        loaded = cast("Model", torch.load(file, weights_only=False))
        for other in (twin, loaded):
            Criterion()(other(codes), targets).backward()
        criterion(model(codes), targets).backward()

    assert len(recorded.rows("tensor_stats", name="head.weight", role=GRAD, microstep=0)) == 1
    assert len(recorded.rows("tensor_stats", name="head", role=ACTIVATION)) == 1


class Embedded(Dataset[Tensor]):
    """Runs a watched model in the loader's workers."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        return self.model(torch.tensor([[index]])).detach().sum()


def test_a_watched_model_in_a_loaders_worker_tells_nothing_there(recorded: Recorded) -> None:
    model = Model()
    attach(recorded.run, model, **DEEP)
    with recorded.run.step(0):
        fetched = list(DataLoader(Embedded(model), batch_size=2, num_workers=1))
        model(torch.tensor([[0]])).sum().backward()

    assert len(fetched) == 2
    assert len(recorded.rows("tensor_stats", name="head", role=ACTIVATION)) == 1
    assert len(recorded.rows("tensor_stats", name="head.weight", role=GRAD)) == 1


def test_watched_again_after_it_was_detached_a_model_is_told_once(recorded: Recorded) -> None:
    model = Model()
    trained(recorded, model, **DEEP).detach()
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.1), Criterion()
    attach(recorded.run, model, optimizer=optimizer, loss=criterion, **DEEP)
    with recorded.run.step(1):
        optimizer.zero_grad()
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()
        optimizer.step()

    for role in (ACTIVATION, ACTIVATION_GRAD):
        assert len(recorded.rows("tensor_stats", name="head", role=role, step=1)) == 1
    for role in (WEIGHT, GRAD, UPDATE):
        assert len(recorded.rows("tensor_stats", name="head.weight", role=role, step=1)) == 1


def test_two_models_with_an_optimizer_each_tell_of_their_own(recorded: Recorded) -> None:
    models = [Model(), Model()]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    criterion = Criterion()
    for model, optimizer in zip(models, optimizers, strict=True):
        attach(recorded.run, model, optimizer=optimizer, **DEEP)
    with recorded.run.step(0):
        for model, optimizer in zip(models, optimizers, strict=True):
            criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()
            optimizer.step()

    assert len(recorded.rows("tensor_stats", name="head.weight", role=UPDATE)) == 1
    assert len(recorded.rows("tensor_stats", name="model2.head.weight", role=UPDATE)) == 1
    (gradient,) = recorded.rows("tensor_stats", name="model2.head.weight", role=GRAD)
    assert gradient["l2"] == pytest.approx(norm_of(models[1].head.weight.grad), rel=1e-5)
