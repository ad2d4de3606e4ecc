"""What a watch captures can be said in the environment and in the call, which wins; its manual names each setting."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import rankscope
from rankscope.errors import ConfigError
from rankscope.probe import switching
from rankscope_proto.names import Role
from tests.agent.probe.trainings import Model
from tests.house.tree import text_of

SETTINGS: dict[str, tuple[str, Any, object]] = {
    "level": ("2", 3, 2),
    "every": ("7", 5, 7),
    "include": ("blocks.*, head", ("norm",), ("blocks.*", "head")),
    "exclude": ("*.bias", ("embed",), ("*.bias",)),
    "roles": ("weight,grad", (Role.ACTIVATION,), (Role.WEIGHT, Role.GRAD)),
}
"""Of each setting: what the environment says, what the call says, and what the former means."""


@pytest.fixture
def model() -> Iterator[nn.Module]:
    """A model, and after it no run."""
    yield Model()
    rankscope.finish()


@pytest.mark.parametrize("name", SETTINGS)
def test_what_the_environment_says_holds_where_the_call_does_not_say(
    name: str, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, told, meant = SETTINGS[name]
    monkeypatch.setenv(f"RANKSCOPE_{name.upper()}", said)
    rankscope.init()

    by_environment = rankscope.watch(model).configuration
    by_call = rankscope.watch(model, **{name: told}).configuration

    assert getattr(by_environment, name) == meant
    assert getattr(by_call, name) == told


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_file_may_be_named_either_way(
    by_environment: bool, model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "LOOKED_AT_EVERY_NS", 0)
    file = tmp_path / "capture.json"
    file.write_text(json.dumps({"level": 0, "every": 3}))
    if by_environment:
        monkeypatch.setenv("RANKSCOPE_CAPTURE_FILE", str(file))
    run = rankscope.init()
    probe = rankscope.watch(model) if by_environment else rankscope.watch(model, capture_file=file)

    with run.step(0):
        assert (probe.configuration.level, probe.configuration.every) == (0, 3)


@pytest.mark.parametrize(("name", "told"), [("budget", 0.5), ("budget", None), ("whole_updates", True)])
def test_the_rest_is_said_in_the_call(name: str, told: object, model: nn.Module) -> None:
    rankscope.init()

    options: dict[str, Any] = {name: told}
    assert getattr(rankscope.watch(model, **options).configuration, name) == told


@pytest.mark.parametrize("name", ["level", "every", "roles"])
def test_a_wrong_value_of_the_environment_is_said_with_its_variable(
    name: str, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"RANKSCOPE_{name.upper()}"
    monkeypatch.setenv(variable, "many")

    with pytest.raises(ConfigError, match=variable):
        rankscope.init()


def test_the_manual_of_the_probe_names_each_setting() -> None:
    manual = text_of("agent/rankscope/probe/README.md")

    for name in (*SETTINGS, "capture_file"):
        assert f"RANKSCOPE_{name.upper()}" in manual
