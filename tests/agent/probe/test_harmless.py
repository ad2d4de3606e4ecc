"""A watch leaves training exactly as it was."""

import copy
import gc
import io
import logging
import weakref
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rankscope._run import Run
from rankscope.probe.attach import attach
from rankscope.probe.hooks import MAX_FAILURES
from rankscope.probe.meters import DeviceMeter, HostMeter, Meter
from rankscope.probe.sheet import meter_of
from tests.agent.probe.devices import HostAsDevice
from tests.agent.probe.trainings import (
    EVERY_STEP,
    Criterion,
    Model,
    Recorded,
    batches,
    hook_count,
    names,
    train,
    trained,
    watching,
)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def weights_and_losses(level: int | None) -> tuple[list[Tensor], list[Tensor]]:
    torch.manual_seed(3)
    model, criterion, recorded = Model(), Criterion(), Recorded()
    model.blocks.insert(1, nn.Dropout(0.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if level is not None:
        attach(recorded.run, model, optimizer=optimizer, loss=criterion, level=level, every=1)
    losses = list(train(recorded.run, model, batches(5), optimizer=optimizer, criterion=criterion))
    return losses, [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_losses_and_weights_are_identical_to_the_bit_with_and_without(level: int) -> None:
    with_watch, without = weights_and_losses(level), weights_and_losses(None)

    assert all(map(torch.equal, with_watch[0], without[0]))
    assert all(map(torch.equal, with_watch[1], without[1]))


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_global_random_state_is_not_touched(recorded: Recorded, level: int) -> None:
    model = Model()
    before = torch.get_rng_state()

    trained(recorded, model, steps=2, every=1, level=level)

    assert torch.equal(torch.get_rng_state(), before)


class Reads(TorchDispatchMode):
    """Counts the operations by which a host waits for a device's value."""

    WAITING = ("aten._local_scalar_dense", "aten.is_nonzero", "aten.equal", "aten.nonzero", "aten.item")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).rsplit(".", 1)[0]
        if name in self.WAITING:
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def host_meter(_device: torch.device) -> Meter:
    return HostMeter()


def device_meter(_device: torch.device) -> Meter:
    return DeviceMeter(HostAsDevice())


@pytest.mark.parametrize("meter_for", [host_meter, device_meter])
def test_no_operation_in_a_step_reads_a_value_through_the_dispatcher(recorded: Recorded, meter_for: Any) -> None:
    model, criterion = Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = watching(recorded, model, EVERY_STEP, meter_for=meter_for)
    watch.hook(optimizers=[optimizer], scaler=None, criterion=criterion, loader=None)

    with Reads() as reads:
        list(train(recorded.run, model, batches(3), optimizer=optimizer, criterion=criterion))

    watch.detach()
    assert reads.seen == []
    assert len(recorded.rows("tensor_stats", step=2)) > 20


def test_the_last_step_of_a_device_is_handed_over_when_the_run_finishes(recorded: Recorded) -> None:
    model, device = Model(), HostAsDevice()
    device.is_behind = True
    watch = watching(recorded, model, EVERY_STEP, meter_for=lambda _device: DeviceMeter(device))
    watch.hook(optimizers=[], scaler=None, criterion=None, loader=None)

    with recorded.run.step(0):
        model(batches(1)[0][0]).sum().backward()

    assert recorded.rows("tensor_stats", step=0)


def test_the_check_for_reads_sees_a_read() -> None:
    with Reads() as reads:
        torch.ones(1).item()

    assert reads.seen == ["aten._local_scalar_dense"]


def test_no_activation_outlives_its_step(recorded: Recorded) -> None:
    model = Model()
    outputs: list[weakref.ref[Tensor]] = []
    attach(recorded.run, model, every=1)

    def note(_module: nn.Module, _args: object, output: Tensor) -> None:
        outputs.append(weakref.ref(output))

    model.blocks[1].register_forward_hook(note)

    with recorded.run.step(0):
        loss = Criterion()(model(batches(1)[0][0]), batches(1)[0][1])
        loss.backward()
    del loss
    gc.collect()

    assert [output() for output in outputs] == [None]


class Failing(HostMeter):
    """A meter with a fault of its own."""

    def finiteness(self, values: Tensor, row: object) -> None:
        raise RuntimeError("a fault of the meter")


def test_a_fault_of_the_watch_never_reaches_training_and_switches_it_off(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    model, criterion = Model(), Criterion()
    watch = watching(recorded, model, EVERY_STEP, meter_for=lambda _device: Failing())
    watch.hook(optimizers=[], scaler=None, criterion=criterion, loader=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    with caplog.at_level(logging.WARNING):
        losses = list(train(recorded.run, model, batches(3), optimizer=optimizer, criterion=criterion))

    assert len(losses) == 3
    assert watch.guard.is_off
    assert len(caplog.records) == 1
    assert "a fault of the meter" in str(recorded.rows("gaps", cause="unsupported")[0]["detail"])


def test_a_watch_that_has_switched_itself_off_answers_who_waits_for_values_when_it_comes_off(
    recorded: Recorded,
) -> None:
    watch = watching(recorded, Model(), EVERY_STEP, meter_for=meter_of)
    for _ in range(MAX_FAILURES):
        watch.guard.note("a hook", RuntimeError("a fault"))
    pending = watch.keeper.ask(["head.weight"], cause="capture")

    watch.detach()

    assert pending.is_done


def test_detach_leaves_no_hook_and_records_nothing_more(recorded: Recorded) -> None:
    model, criterion = Model(), Criterion()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = attach(recorded.run, model, optimizer=optimizer, loss=criterion, every=1)
    list(train(recorded.run, model, batches(1), optimizer=optimizer, criterion=criterion))

    watch.detach()
    watch.detach()
    for index, (codes, targets) in enumerate(batches(2)):
        with recorded.run.step(index + 1):
            criterion(model(codes), targets).backward()

    assert hook_count(*model.modules(), *model.parameters(), optimizer, criterion) == 0
    assert {row["step"] for row in recorded.rows("tensor_stats")} == {0}
    assert {row["name"] for row in recorded.rows("spans", step=1)} == {"step"}


def test_detach_inside_a_step_hands_over_what_was_captured(recorded: Recorded) -> None:
    model = Model()
    watch = attach(recorded.run, model)
    with recorded.run.step(0):
        model(batches(1)[0][0])
        watch.detach()

    assert "blocks.0" in names(recorded.rows("tensor_stats"))


def test_a_run_that_records_nothing_hooks_nothing() -> None:
    model, optimizer = Model(), torch.optim.SGD([torch.ones(1)])

    watch = attach(Run(None), model, optimizer=optimizer)

    assert watch.model is None
    assert hook_count(*model.modules(), optimizer) == 0


def test_watching_a_model_again_replaces_the_watch(recorded: Recorded) -> None:
    model = Model()
    first = attach(recorded.run, model, level=0)

    trained(recorded, model)

    assert first.model is None
    assert names(recorded.rows("tensor_stats")).count("blocks.0") == 1


def test_two_models_keep_their_tensors_apart(recorded: Recorded) -> None:
    one, other, criterion = Model(), Model(), Criterion()
    attach(recorded.run, one)
    attach(recorded.run, other)
    with recorded.run.step(0):
        for model in (one, other):
            criterion(model(batches(1)[0][0]), batches(1)[0][1]).backward()

    found = names(recorded.rows("tensor_stats"))
    assert found.count("blocks.0") == found.count("model2.blocks.0") == 1
    assert found.count("head.weight") == found.count("model2.head.weight") == 2  # the weight and its gradient


@pytest.mark.parametrize("level", [1, 2])
def test_hooks_do_not_act_for_a_copy(recorded: Recorded, level: int) -> None:
    model = Model()
    attach(recorded.run, model, level=level)
    ema, shallow = copy.deepcopy(model), copy.copy(model.head)

    with recorded.run.step(0):
        ema(batches(1)[0][0])
        shallow(torch.ones(1, 8))

    assert recorded.rows("tensor_stats") == []
    assert recorded.phases(0) == []


@pytest.mark.parametrize("level", [1, 2])
def test_a_watched_model_can_be_saved_whole(recorded: Recorded, level: int) -> None:
    model = Model()
    attach(recorded.run, model, level=level)
    file = io.BytesIO()

    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)

    with recorded.run.step(0):
        loaded(batches(1)[0][0])
    assert recorded.rows("tensor_stats") == []


def test_a_watched_model_cannot_be_scripted_and_the_error_says_what_to_do(recorded: Recorded) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    watch = recorded.run.watch(model, every=1)

    with (
        pytest.warns(DeprecationWarning, match="torch.jit"),
        pytest.raises(AttributeError, match=r"call detach\(\) on the watch before"),
    ):
        torch.jit.script(model)

    watch.detach()
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        assert torch.jit.script(model)(torch.zeros(1, 2)).shape == (1, 2)


def test_a_hook_does_not_act_while_a_model_is_traced(recorded: Recorded) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    recorded.run.watch(model, every=1)

    with recorded.run.step(0), pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.trace(model, torch.zeros(1, 2), check_trace=False)
    recorded.run.finish()

    assert not recorded.exporter.rows("tensor_stats")


def test_a_tensor_with_our_hook_is_saved_without_a_warning(recorded: Recorded) -> None:
    model = nn.Linear(2, 2)
    recorded.run.watch(model, every=1)

    with recorded.run.step(0):
        output = model(torch.zeros(1, 2))
        torch.save(output, io.BytesIO())
        torch.save(list(model.parameters()), io.BytesIO())


def test_transformed_and_valueless_tensors_are_left_alone(recorded: Recorded) -> None:
    model = nn.ModuleList([nn.Linear(2, 2)])
    watch = attach(recorded.run, model)

    with recorded.run.step(0):
        torch.vmap(model[0])(torch.ones(3, 2))
        model[0].to("meta")(torch.empty(1, 2, device="meta"))

    assert watch.watch.guard.failures == 0
    assert recorded.rows("tensor_stats") == []


@pytest.mark.parametrize("level", [1, 2])
def test_hooks_break_no_graph_of_a_model_that_is_compiled_after_them(recorded: Recorded, level: int) -> None:
    model = Model()
    probe = attach(recorded.run, model, level=level, every=2)
    graphs: list[object] = []

    def count(graph: Any, _inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    compiled = cast("nn.Module", cast("Any", torch).compile(model, backend=count, fullgraph=True))
    for index in range(4):
        with recorded.run.step(index):
            compiled(batches(1)[0][0]).sum().backward()

    assert len(graphs) == 1
    assert probe.watch.guard.failures == 0


def test_a_compiled_model_keeps_its_one_graph_and_says_what_is_missing(recorded: Recorded) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert isinstance(compiled, nn.Module)
    attach(recorded.run, compiled)

    with recorded.run.step(0):
        compiled(torch.ones(1, 2)).sum().backward()

    assert recorded.phases(0) == ["forward", "backward"]
    assert len(recorded.rows("tensor_stats", name="0.weight")) == 2
    assert "compiled" in str(recorded.rows("gaps", cause="unsupported")[0]["detail"])


def test_the_meter_of_a_cpu_reads_at_once() -> None:
    assert isinstance(meter_of(torch.device("cpu")), HostMeter)
