"""Every statement of the service is parsed: no table without a project filter, no value in the text."""

import re

import pytest
import sqlglot
from sqlglot import exp

from rankscope_proto.columns import SECTIONS
from rankscope_query_api.clickhouse import check_ranges
from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.reading import (
    captures,
    clocks,
    collectives,
    deletion,
    export,
    failures,
    findings,
    ledger,
    meetings,
    model,
    nonfinite,
    open_now,
    runs,
    spans,
    standings,
    tensors,
    totals,
    trace_detail,
    trace_steps,
    traces,
)

MODULES = (
    *(runs, traces, open_now, totals, trace_detail, trace_steps, export, spans, tensors, captures, model, ledger),
    *(clocks, standings, failures, findings, nonfinite, deletion),
    *(collectives, meetings),
)
STATEMENTS = [statement for module in MODULES for statement in module.STATEMENTS]
OF_PROJECT = {
    *(runs.RUNS, runs.RUN_IDS, runs.RUN_COUNT, runs.RUNS_WITH_GAPS),
    *(*traces.OF_PROJECT, *open_now.OF_PROJECT, *totals.OF_PROJECT),
}
TABLES = {section.table for section in SECTIONS} | {"batches", "trace_index"}


def parsed(statement: str) -> exp.Expr:
    """The statement's tree."""
    return sqlglot.parse_one(statement, dialect="clickhouse")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_table_is_read_for_one_project_only(statement: str) -> None:
    for table in parsed(statement).find_all(exp.Table):
        select = table.find_ancestor(exp.Select)
        assert select is not None
        where = select.args.get("where")

        assert table.name in TABLES
        assert where is not None, f"{table.name} is read without a filter"
        assert "project = {project: String}" in where.sql(dialect="clickhouse").split(" OR ")[0]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_table_is_read_for_one_run_but_where_all_runs_of_a_project_are_listed(statement: str) -> None:
    if statement in OF_PROJECT:
        return
    for table in parsed(statement).find_all(exp.Table):
        select = table.find_ancestor(exp.Select)
        assert select is not None
        assert re.search(r"run_id (=|IN) \{runs?: ", select.args["where"].sql(dialect="clickhouse"))


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_limit_has_an_order(statement: str) -> None:
    for select in parsed(statement).find_all(exp.Select):
        assert not select.args.get("limit") or select.args.get("order")


@pytest.mark.parametrize(
    ("type_", "value"),
    [("UInt8", 256), ("UInt8", -1), ("Int64", 2**63), ("UInt64", 2**64), ("Int32", -(2**31) - 1)],
)
def test_an_integer_that_its_type_cannot_hold_is_refused(type_: str, value: int) -> None:
    # ClickHouse binds it as something else, silently: {x:UInt8} with 256 is 0.
    with pytest.raises(InvalidRequestError, match=f"x is {value}"):
        check_ranges(f"SELECT {{x:{type_}}}", {"x": value})
    with pytest.raises(InvalidRequestError, match=f"x is {value}"):
        check_ranges(f"SELECT {{x:Array({type_})}}", {"x": [0, value]})


def test_integers_in_range_and_other_values_pass() -> None:
    check_ranges("SELECT {a:UInt64}, {b:String}, {c:Array(Int64)}", {"a": 2**64 - 1, "b": "x", "c": [-(2**63)]})


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_compared_step_is_written_such_that_the_sorting_key_is_used(statement: str) -> None:
    assert not re.search(r"(?<!toInt64\()ifNull\(step, -1\) (=|<|>|IN)", statement)
