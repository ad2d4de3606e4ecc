"""Under a loss scaler, gradients are told as they would be without it, and the steps it leaves out are marked."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from rankscope.errors import ConfigError
from rankscope.probe.attach import attach
from rankscope.probe.rows import LossScale, Numbers, Row, Subject
from rankscope.probe.scaling import SCALED, SKIPPED, UNSCALED, Scaling, divided, unscale
from rankscope.probe.statistics import table
from rankscope.probe.tensors import Traits
from rankscope_proto.names import Role
from tests.agent.probe.devices import HostAsDevice
from tests.agent.probe.trainings import BACKWARD, GRAD, LOCAL, Criterion, Model, Recorded, batches, norm_of


def seeded() -> Model:
    torch.manual_seed(3)
    return Model()


def plain_norms(steps: int) -> list[dict[str, float]]:
    """Norms of the gradients of the same training without a scaler."""
    model, criterion = seeded(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms: list[dict[str, float]] = []
    for codes, targets in batches(steps):
        optimizer.zero_grad()
        criterion(model(codes), targets).backward()
        norms.append({name: norm_of(parameter.grad) for name, parameter in model.named_parameters()})
        optimizer.step()
    return norms


def scaled_training(
    recorded: Recorded,
    *,
    steps: int,
    overflows_at: int = -1,
    unscales: bool = False,
    fused: bool = False,
    **options: Any,
) -> GradScaler:
    """Train with a scaler that the watch knows; in one step the loss is infinite."""
    model, criterion, scaler = seeded(), Criterion(), GradScaler("cpu", init_scale=2.0**16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    told: dict[str, Any] = {"every": 1, "budget": None, "scaler": scaler, "optimizer": optimizer, **options}
    attach(recorded.run, model, loss=criterion, **told)
    for index, (codes, targets) in enumerate(batches(steps)):
        with recorded.run.step(index):
            optimizer.zero_grad()
            loss: Tensor = criterion(model(codes), targets)
            scaler.scale(loss * (torch.inf if index == overflows_at else 1)).backward()
            if unscales:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
    return scaler


@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize("level", [1, 2])
def test_gradients_are_those_of_a_training_without_a_scaler(recorded: Recorded, unscales: bool, level: int) -> None:
    scaled_training(recorded, steps=1, unscales=unscales, level=level)

    rows = recorded.rows("tensor_stats", role=GRAD)
    assert {row["name"]: row["l2"] for row in rows} == pytest.approx(plain_norms(1)[0], rel=1e-5)
    assert {row["flags"] for row in rows} == {LOCAL | UNSCALED}
    assert {row["loss_scale"] for row in rows} == {2.0**16}


def test_so_are_the_gradients_that_arrive_at_outputs_and_what_is_no_gradient_is_left_as_it_is(
    recorded: Recorded,
) -> None:
    scaled_training(recorded, steps=1, level=2)
    without = Recorded()
    model, criterion = seeded(), Criterion()
    attach(without.run, model, loss=criterion, level=2, every=1, budget=None)
    with without.run.step(0):
        criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    for role in (Role.ACTIVATION_GRAD.code, Role.ACTIVATION.code, Role.WEIGHT.code):
        expected = {row["name"]: row for row in without.rows("tensor_stats", role=role)}
        rows = recorded.rows("tensor_stats", role=role)
        assert {row["name"] for row in rows} == set(expected)
        for row in rows:
            assert row["l2"] == pytest.approx(expected[row["name"]]["l2"], rel=1e-5)
            assert row["log2_hist"] == expected[row["name"]]["log2_hist"]
            assert (row["loss_scale"] is None) == (role != Role.ACTIVATION_GRAD.code)


@pytest.mark.parametrize("fused", [False, True])
def test_the_gradients_of_a_step_that_was_left_out_say_so_and_so_does_an_event(recorded: Recorded, fused: bool) -> None:
    scaled_training(recorded, steps=4, overflows_at=1, fused=fused, level=2)

    gradients = recorded.rows("tensor_stats", role=GRAD)
    assert {row["step"] for row in gradients if row["flags"] & SKIPPED} == {1}
    assert all(row["flags"] & SKIPPED for row in gradients if row["step"] == 1)
    assert {row["loss_scale"] for row in gradients if row["step"] >= 2} == {2.0**15}
    (event,) = recorded.rows("events", kind="step_skipped")
    assert event["step"] == 1
    assert json.loads(event["payload"]) == {"loss_scale": 2.0**16, "loss_scale_after": 2.0**15, "model": ""}
    assert {row["step"] for row in recorded.rows("tensor_stats", role=Role.UPDATE.code)} == {0, 2, 3}


def test_a_step_that_was_left_out_is_no_reason_to_look_closer(recorded: Recorded) -> None:
    scaled_training(recorded, steps=3, overflows_at=1, every=5)

    assert {row["step"] for row in recorded.rows("tensor_stats", role=GRAD)} == {0}


def test_an_update_after_the_step_is_seen_when_the_next_one_is(recorded: Recorded) -> None:
    model, criterion, scaler = seeded(), Criterion(), GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, loss=criterion, scaler=scaler, optimizer=optimizer)
    for index, (codes, targets) in enumerate(batches(2)):
        with recorded.run.step(index):
            scaler.scale(criterion(model(codes), targets) * (torch.inf if index == 0 else 1)).backward()
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    assert [row["step"] for row in recorded.rows("events", kind="step_skipped")] == [0]


def test_every_microstep_of_an_update_that_was_left_out_is_marked(recorded: Recorded) -> None:
    model, criterion, scaler = seeded(), Criterion(), GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, loss=criterion, scaler=scaler, optimizer=optimizer)
    with recorded.run.step(0):
        for index, (codes, targets) in enumerate(batches(3)):
            scaler.scale(criterion(model(codes), targets) * (torch.inf if index == 1 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()

    rows = recorded.rows("tensor_stats", role=GRAD, name="head.bias")
    assert [(row["microstep"], row["flags"] & SKIPPED) for row in rows] == [(0, SKIPPED), (1, SKIPPED), (2, SKIPPED)]


def test_a_scale_that_somebody_lowers_by_hand_is_no_step_left_out(recorded: Recorded) -> None:
    model, criterion, scaler = seeded(), Criterion(), GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(recorded.run, model, loss=criterion, scaler=scaler, optimizer=optimizer)
    with recorded.run.step(0):
        scaler.scale(criterion(model(batches(1)[0][0]), batches(1)[0][1])).backward()
        scaler.step(optimizer)
        scaler.update(2.0**15)

    assert not recorded.rows("events", kind="step_skipped")
    assert not any(row["flags"] & SKIPPED for row in recorded.rows("tensor_stats"))


def test_a_scaler_that_is_switched_off_changes_nothing(recorded: Recorded) -> None:
    model, criterion, scaler = seeded(), Criterion(), GradScaler("cpu", enabled=False)
    attach(recorded.run, model, loss=criterion, scaler=scaler)
    with recorded.run.step(0):
        scaler.scale(criterion(model(batches(1)[0][0]), batches(1)[0][1])).backward()

    rows = recorded.rows("tensor_stats", role=GRAD)
    assert {(row["flags"], row["loss_scale"]) for row in rows} == {(LOCAL, None)}


def test_where_an_optimizer_shows_a_scaler_that_was_not_told_of_gradients_are_called_scaled(recorded: Recorded) -> None:
    scaled_training(recorded, steps=1, fused=True, scaler=None)

    rows = recorded.rows("tensor_stats", role=GRAD)
    assert {(row["flags"], row["loss_scale"]) for row in rows} == {(LOCAL | SCALED, None)}


def test_what_is_no_scaler_is_refused(recorded: Recorded) -> None:
    wrong: Any = 65536.0
    with pytest.raises(ConfigError, match="scaler is a float; pass a torch"):
        attach(recorded.run, seeded(), scaler=wrong)


@pytest.mark.parametrize("scale", [2.0**16, 2.0**-3, 1000.0])
@pytest.mark.parametrize("greatest", [1.0, 1e-20, 3e4])
def test_divided_statistics_are_those_of_the_divided_values(scale: float, greatest: float) -> None:
    values = torch.linspace(-greatest / 3, greatest, 1001)

    made = divided(table(values), scale, values=values)

    expected = table(values.double() / scale)
    for name in ("l1", "l2", "absmax", "absmin_nonzero", "mean", "std", "min", "max", "rms"):
        assert getattr(made, name) == pytest.approx(getattr(expected, name), rel=1e-6, abs=1e-30)
    assert sum(made.log2_hist) == sum(expected.log2_hist)
    assert moved(made.log2_hist, expected.log2_hist) <= 2  # a quotient on the edge of a bucket, rounded
    assert made.loss_scale == scale


def moved(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(abs(here - there) for here, there in zip(one, other, strict=True))


def test_a_histogram_that_cannot_be_moved_exactly_is_left_out_where_the_values_are_gone() -> None:
    values = torch.tensor([1.0, 3000.0])

    assert divided(table(values), 2.0**16).log2_hist == ()


def test_a_scale_on_a_device_is_known_when_its_copy_has_arrived_and_nothing_waits_for_it(recorded: Recorded) -> None:
    device = HostAsDevice()
    scaler = GradScaler("cpu", init_scale=8.0)
    model = nn.Linear(1, 1)
    probe = attach(recorded.run, model)
    scaling = Scaling(scaler, probe.watch.recording, device_for=lambda _: device)
    scaler.scale(torch.ones(()))
    scaling.begin(0)
    scale = scaling.live()
    assert scale is not None

    device.is_behind = True
    scaling.end()
    scaling.settle(wait=False)
    assert (scale.value, scale.is_judged) == (None, False)

    device.is_behind = False
    scaling.settle(wait=False)
    assert (scale.value, scale.is_judged, device.waits) == (8.0, True, 0)


def test_while_a_graph_is_captured_no_scale_is_read_sent_or_asked_for(recorded: Recorded) -> None:
    # given a scale on its way
    device = HostAsDevice()
    scaler = GradScaler("cpu", init_scale=8.0)
    probe = attach(recorded.run, nn.Linear(1, 1))
    scaling = Scaling(scaler, probe.watch.recording, device_for=lambda _: device)
    scaler.scale(torch.ones(()))
    scaling.begin(0)
    scale = scaling.live()
    assert scale is not None
    scaling.end()

    # when the next step is in a graph
    device.is_in_graph = True
    scaling.settle(wait=False)
    scaling.begin(1)
    captured = scaling.live()
    scaling.end()

    # then nothing is known of that one, and of the other as soon as the graph is there
    assert (scale.value, captured) == (None, None)
    device.is_in_graph = False
    scaling.settle(wait=False)
    assert (scale.value, scale.is_judged) == (8.0, True)


def test_a_scale_that_never_arrives_leaves_the_gradient_scaled() -> None:
    row = gradient_row(LossScale(0, 0, is_judged=True))

    unscale(row)

    assert (row.flags, row.numbers) == (LOCAL | SCALED, Numbers(l2=8.0))


def gradient_row(scale: LossScale) -> Row:
    """A row of a gradient whose stored norm is 8."""
    subject = Subject("weight", "", None, "", GRAD)
    traits = Traits("float32", (1,), "", 1, 1)
    return Row(subject, traits, BACKWARD, LOCAL, 0, 0, 0, Numbers(l2=8.0), loss_scale=scale)
