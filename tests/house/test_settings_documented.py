"""A setting that no paper names does not exist for those who run the thing."""

import re

import pytest
import typer
from typer.core import TyperGroup

from rankscope._settings import SETTINGS
from rankscope.cli._app import app
from rankscope_ingest.settings import BrokerSettings, GatewaySettings, MigrateSettings, WriterSettings, env_name
from rankscope_query_api.settings import Settings as QuerySettings
from tests.house.tree import python_files, text_of, tracked_files

VARIABLE = re.compile(r"\bRANKSCOPE_[A-Z]+(?:_[A-Z]+)*\b")
SOURCE = ("agent/", "ingest/", "query_api/", "tests/ground/")
OF_SERVICES = (BrokerSettings, GatewaySettings, WriterSettings, MigrateSettings, QuerySettings)
FOR_EXAMPLE = {"RANKSCOPE_X"}


def documented() -> set[str]:
    papers = [name for name in tracked_files() if name.endswith(".md")]
    return {word for name in papers for word in VARIABLE.findall(text_of(name))}


def test_every_variable_in_the_source_is_in_a_paper() -> None:
    named = {word for name in python_files(under=SOURCE) for word in VARIABLE.findall(text_of(name))}

    missing = named - documented() - FOR_EXAMPLE
    assert not missing


@pytest.mark.parametrize("settings", OF_SERVICES)
def test_every_setting_of_a_service_is_in_a_paper(settings: type[GatewaySettings] | type[QuerySettings]) -> None:
    missing = {env_name(field) for field in settings.model_fields} - documented()

    assert not missing


def test_every_setting_of_a_trainer_is_in_a_paper() -> None:
    missing = {setting.variable for setting in SETTINGS.values()} - documented()

    assert not missing


def test_every_variable_of_a_command_is_in_its_paper() -> None:
    paper = text_of("agent/rankscope/cli/README.md")

    missing = {variable for variable in command_variables() if f"`{variable}`" not in paper}

    assert not missing


def command_variables() -> set[str]:
    """The variable of each option of our own commands: its own, or RANKSCOPE_<COMMAND>_<OPTION>."""
    commands = typer.main.get_group(app).commands
    below = {
        f"{name}_{inner}": command
        for name, group in commands.items()
        if isinstance(group, TyperGroup)
        for inner, command in group.commands.items()
    }
    options = [
        (name, parameter)
        for name, command in {**commands, **below}.items()
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.name != "help"
    ]
    return {
        str(parameter.envvar or f"RANKSCOPE_{name}_{parameter.name}".upper().replace("-", "_"))
        for name, parameter in options
    }
