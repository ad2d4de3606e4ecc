"""The manual tells the truth: its queries pass the check, its words and limits are those of the language."""

import re

import pytest

from rankscope import tql
from rankscope.cli import _errors
from rankscope.tql import fields, words
from rankscope.tql.functions import FUNCTIONS
from rankscope.tql.history import HISTORIES
from tests.house.tree import ROOT

MANUAL = (ROOT / "query_api/TQL.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "agent/rankscope/cli/README.md").read_text(encoding="utf-8")
EXAMPLES = [line for block in re.findall(r"```tql\n(.*?)```", MANUAL, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_query_of_the_manual_passes_the_check(text: str) -> None:
    assert tql.check(tql.parse(text))


def test_the_limits_of_the_manual_are_those_of_the_parser() -> None:
    stated = (
        f"{words.MAX_BYTES // 1024} KiB of text, {words.MAX_NODES} nodes, {words.MAX_DEPTH} levels, "
        f"{words.MAX_ITEMS} items of a list, {words.MAX_STAGES} stages, {words.MAX_RELATIONS} structural operators "
        f"in a chain, {words.MAX_HISTORIES} different functions of a series, {words.MAX_OPERATORS} arithmetic "
        f"operators, {words.MAX_OPERATORS_DEEP} of them inside one another"
    )

    assert stated in " ".join(MANUAL.split())


def test_every_function_aggregate_comparison_and_unit_is_in_the_manual() -> None:
    named = set(re.findall(r"[A-Za-z_0-9]+", MANUAL))

    assert {*FUNCTIONS, *HISTORIES, *words.AGGREGATES, *words.ACROSS, *words.UNITS} <= named


def test_every_scope_is_in_the_manual() -> None:
    assert not [scope for scope in fields.SCOPES if f"`{scope}." not in MANUAL]


def test_the_exit_statuses_are_those_of_the_command_line() -> None:
    stated = re.findall(r"^\| (\d+) \|", COMMANDS, re.MULTILINE)

    assert [int(status) for status in stated] == [
        *(_errors.OK, _errors.FAILED, _errors.USAGE, _errors.NOT_FOUND),
        *(_errors.FAILED_IF, _errors.OVER_GAP, _errors.INTERRUPTED),
    ]
