"""What a watch cannot do is said clearly, and training goes on."""

import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn

from rankscope import _torch
from rankscope.errors import ConfigError
from rankscope.probe import CaptureConfiguration, EventFilter, Trigger, Values
from rankscope.probe.attach import attach
from tests.agent.probe.trainings import ACTIVATION, Criterion, Model, Recorded, Row, batches, names

if TYPE_CHECKING:
    from rankscope_proto.names import Role

ASKS: list[tuple[Callable[[Any], object], str]] = [
    (lambda probe: probe.capture("head"), "nodes is 'head'; write a sequence of paths"),
    (lambda probe: probe.capture([]), "nodes is empty"),
    (lambda probe: probe.capture(iter(["head"])), "write a sequence of paths"),
    (lambda probe: probe.capture([3]), "3 names no node"),
    (lambda probe: probe.capture(["head"], values="whole"), "values is 'whole'; pass a Values"),
    (lambda probe: probe.capture(["head"], step=-1), "step is -1; write the number of a step"),
    (lambda probe: probe.configure({}), "the configuration is a dict; pass a CaptureConfiguration"),
    (lambda probe: probe.configure(CaptureConfiguration(), from_step="7"), "from_step is '7'; write the number"),
    (lambda _: EventFilter(nodes=cast("Any", "head")), "nodes is 'head'; write a tuple"),
    (lambda _: EventFilter(nodes=cast("Any", (3,))), "nodes has 3; write paths or globs"),
    (lambda _: EventFilter(roles=cast("Any", ("gard",))), "roles has 'gard'; a role is one of weight, grad"),
    (lambda _: EventFilter(kinds=cast("Any", (Row,))), "events are of the classes StatisticsEvent"),
    (lambda _: EventFilter(most_waiting=cast("Any", "1")), "most_waiting=1 has room for no event"),
    (lambda _: Trigger(node=cast("Any", 3), predicate="tensor.l2 > 0"), "node is 3; write text"),
    (lambda _: Trigger(node="head", predicate=cast("Any", 3)), "predicate is 3; write text"),
]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_a_model_without_parameters_is_said_and_its_outputs_are_there(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Sequential(nn.ReLU())

    with caplog.at_level(logging.WARNING):
        attach(recorded.run, model, include=["*"])
    with recorded.run.step(0):
        model(torch.ones(2))

    assert "Sequential has no parameters" in caplog.text
    assert names(recorded.rows("tensor_stats", role=ACTIVATION)) == ["0", ""]
    assert "no parameters" in recorded.rows("gaps", cause="unsupported")[0]["detail"]


def test_a_model_on_the_meta_device_is_said_and_measured_once_it_has_values(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(2, 2, device="meta")
    with caplog.at_level(logging.WARNING):
        attach(recorded.run, model, every=1)

    model.to_empty(device="cpu")
    with torch.no_grad():
        model.weight.fill_(1.0)
        model.bias.fill_(1.0)
    with recorded.run.step(0):
        model(torch.ones(1, 2)).sum().backward()

    assert "have no values (meta or fake tensors)" in caplog.text
    assert len(recorded.rows("tensor_stats", name="weight")) == 2


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_filter_that_matches_nothing_names_what_is_near(
    recorded: Recorded, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    globs = ["blcks.1"]

    with caplog.at_level(logging.WARNING):
        if option == "include":
            attach(recorded.run, Model(), include=globs)
        else:
            attach(recorded.run, Model(), exclude=globs)

    assert f"{option}='blcks.1' matches no module and no parameter of the model; the nearest are" in caplog.text
    assert "blocks.1" in caplog.text


@pytest.mark.parametrize("roles", ["weight", ["weigth"]])
def test_roles_that_are_none_are_refused(recorded: Recorded, roles: object) -> None:
    with pytest.raises(ConfigError, match="roles is"):
        attach(recorded.run, Model(), roles=cast("list[Role]", roles))


def test_a_second_watch_of_a_model_is_said(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    attach(recorded.run, model)

    with caplog.at_level(logging.WARNING):
        attach(recorded.run, model)

    assert "Model is watched already" in caplog.text


def test_a_torch_that_lacks_something_is_refused_with_the_release_that_has_it(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_torch, "NEEDED", ("nn.Module", "Tensor.of_tomorrow"))

    with pytest.raises(ConfigError, match=r"torch \d.* has no Tensor.of_tomorrow.*install torch 2\.4 or later"):
        recorded.run.watch(Model())


@pytest.mark.parametrize("how", ["compiled", "direct"])
def test_a_model_whose_hooks_do_not_run_is_said_when_it_shows(recorded: Recorded, how: str) -> None:
    model, criterion = Model(), Criterion()
    attach(recorded.run, model, loss=criterion, every=1)
    run = torch.compile(model, backend="eager") if how == "compiled" else model
    codes, targets = batches(1)[0]

    for index in range(2):
        with recorded.run.step(index):
            if how == "compiled":
                criterion(run(codes), targets).backward()
            else:
                x = model.norm.forward(model.embed.forward(codes))
                criterion(model.head.forward(x), targets).backward()

    (gap,) = recorded.rows("gaps", cause="unsupported")
    assert gap["detail"].startswith("no hooked module ran, though gradients arrived")


def test_a_fast_path_that_hooks_turn_off_is_reported(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 2))

    with caplog.at_level(logging.WARNING):
        attach(recorded.run, model)

    assert "hooks turn off the fast path that 0 (2 such modules) takes in evaluation" in caplog.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"levle": 2}, "watch has no option levle=; did you mean level=?"),
        ({"configuration": {"level": 2}}, "configuration is a dict; pass a CaptureConfiguration"),
        ({"capture_file": 3}, "capture_file is 3; pass the path of a file"),
        ({"budget": "2%"}, "budget is '2%'; write a number or null"),
        ({"whole_updates": "no"}, "whole_updates is 'no'; write true or false"),
        ({"include": [3]}, "include is 3; write text"),
        ({"level": "2"}, "level is '2'; write a whole number"),
        ({"loader": 5}, "a int cannot be timed in place; pass a DataLoader"),
    ],
)
def test_an_option_that_is_none_or_of_the_wrong_kind_is_refused(
    recorded: Recorded, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        attach(recorded.run, Model(), **options)

    assert said in str(refused.value)


@pytest.mark.parametrize(("ask", "said"), ASKS)
def test_what_a_probe_is_asked_for_is_refused_where_it_is_asked_and_not_in_training(
    recorded: Recorded, ask: Callable[[Any], object], said: str
) -> None:
    probe = attach(recorded.run, Model())

    with pytest.raises(ConfigError) as refused:
        ask(probe)

    assert said in str(refused.value)


def test_a_scripted_model_is_refused_and_a_scripted_part_is_said(recorded: Recorded) -> None:
    with pytest.raises(ConfigError, match="is a scripted module, which takes no hooks"):
        attach(recorded.run, scripted())

    model = nn.Sequential(scripted(), nn.Linear(2, 2))
    attach(recorded.run, model, level=2, every=1, budget=None)
    with recorded.run.step(0):
        model(torch.ones(1, 2)).sum().backward()

    assert "0: a scripted module takes no hooks" in [row["detail"] for row in recorded.rows("gaps")]
    assert {"0.weight", "1.weight", "1"} <= {*names(recorded.rows("tensor_stats"))}


class FullyShardedDataParallel(nn.Module):
    """Called as torch's own, which refuses to be made where there is no accelerator."""

    def __init__(self, module: nn.Module, *, use_orig_params: bool) -> None:
        super().__init__()
        self._fsdp_wrapped_module = module
        self._use_orig_params = use_orig_params


@pytest.mark.parametrize("use_orig_params", [True, False])
def test_parameters_that_were_made_one_flat_vector_are_said(recorded: Recorded, use_orig_params: bool) -> None:
    attach(recorded.run, FullyShardedDataParallel(nn.Linear(2, 2), use_orig_params=use_orig_params))

    said = [row for row in recorded.rows("gaps") if "pass use_orig_params=True" in row["detail"]]
    assert bool(said) is not use_orig_params


def scripted() -> nn.Module:
    """A module of the script compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cast("Any", torch).jit.script(nn.Linear(2, 2))


class Ragged(nn.Module):
    """A layer whose output is nested: rows of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.is_nested = True

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return cast("Any", torch).nested.nested_tensor([y, y[:1]]) if self.is_nested else y


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_output_without_a_shape_is_said_also_where_it_had_one_before(recorded: Recorded) -> None:
    model = nn.Sequential(Ragged(), nn.Linear(3, 3))
    part = cast("Ragged", model[0])
    probe = attach(recorded.run, model, include=["*"])
    handle = probe.capture(["0"], step=4)

    for index, part.is_nested in enumerate([False, False, True, False, True]):
        with recorded.run.step(index):
            part(torch.ones(2, 3))

    assert "0: nested tensor is not measured" in [row["detail"] for row in recorded.rows("gaps")]
    assert [row["step"] for row in recorded.rows("tensor_stats", name="0")] == [0, 1, 3]
    assert "it is nested" in handle.reason
    assert probe.watch.guard.failures == 0


def test_values_that_do_not_fit_are_refused_by_their_bytes(recorded: Recorded) -> None:
    model = nn.Linear(64, 64)
    handle = attach(recorded.run, model).capture(["weight"], values=Values(step_bytes=100))

    with recorded.run.step(0):
        model(torch.ones(1, 64)).sum().backward()
    recorded.run.finish()

    assert "weight: 16384 bytes do not fit into the 100 bytes of a step (step_bytes)" in handle.reason
