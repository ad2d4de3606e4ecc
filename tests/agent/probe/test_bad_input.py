"""What a watch cannot do is said clearly, and training goes on."""

import logging
from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import nn

from rankscope import _torch
from rankscope.errors import ConfigError
from rankscope.probe.attach import attach
from tests.agent.probe.trainings import ACTIVATION, Criterion, Model, Recorded, batches, names

if TYPE_CHECKING:
    from rankscope_proto.names import Role


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
