"""The views are those of the contract: the page that describes them is fresh, and they show what it says."""

import httpx
import pytest

from rankscope_query_api.sql.compile import compile_statement
from rankscope_query_api.sql.reference import reference
from rankscope_query_api.sql.views import VIEWS
from tests.ground.stores import Store
from tests.house.tree import ROOT
from tests.query_api.sql.sending import rows, send


def test_the_committed_page_is_what_the_contract_gives() -> None:
    committed = (ROOT / "query_api/VIEWS.md").read_text()

    assert committed == reference(), "python -m rankscope_query_api.sql.reference > query_api/VIEWS.md"


def test_every_view_that_was_promised_is_there() -> None:
    promised = {"spans", "tensor_stats", "metrics", "gaps", "runs", "modules", "events", "hits", "otel_traces"}
    of_ranks = {"collectives", "clocks", "system_stats", "standings"}

    assert set(VIEWS) == promised | of_ranks


@pytest.mark.parametrize("name", VIEWS)
async def test_a_view_has_the_columns_and_types_that_the_page_says(api: httpx.AsyncClient, name: str) -> None:
    answer = await send(api, f"SELECT * FROM {name} LIMIT 0")

    shown = [(column["name"], column["type"]) for column in answer.json()["columns"]]
    assert shown == [(column.name, column.type) for column in VIEWS[name].columns]


@pytest.mark.parametrize("name", ["spans", "tensor_stats", "metrics", "gaps", "runs", "events", "otel_traces"])
async def test_a_view_shows_rows_of_the_story(client: httpx.AsyncClient, name: str) -> None:
    assert len(await rows(client, f"SELECT * FROM {name}", limit=2)) == 2


def test_a_view_shows_every_column_of_its_table_in_some_way() -> None:
    for view in VIEWS.values():
        section = view.section
        values = " ".join(column.value for column in view.columns)
        shown = {field.name for field in section.fields if field.table and f"rs_t.{field.name}" in values}

        assert view.name == "otel_traces" or shown == {field.name for field in section.fields if field.table}


async def test_words_stand_for_codes_and_null_for_no_id(client: httpx.AsyncClient) -> None:
    kinds = await rows(client, "SELECT DISTINCT kind, status FROM spans ORDER BY kind, status")
    ids = await rows(client, "SELECT DISTINCT span_id, trace_id FROM events")

    assert {"kind": "tool", "status": "error"} in kinds
    assert ids == [{"span_id": None, "trace_id": None}]


def test_conditions_on_the_run_and_the_step_are_looked_up_in_the_order_of_the_table(told: Store) -> None:
    text = "SELECT count() AS n FROM spans WHERE run_id = 'bright-otter' AND ifNull(step, -1) = 5 AND name LIKE 's%'"
    statement = compile_statement(text, project="default")

    plan = str(told.client.command(f"EXPLAIN indexes = 1 {statement.sql}", parameters=statement.parameters))

    keys = plan.partition("Keys:")[2].partition("Condition:")[0]
    assert {"project", "run_id", "ifNull(step,", "-1)"} <= set(keys.replace("\\n", " ").split())


def test_a_clock_is_joined_to_its_process_and_its_growth_is_no_moment() -> None:
    clocks = {column.name: column.type for column in VIEWS["clocks"].columns}

    assert clocks["of_incarnation"] == "String"
    assert (clocks["offset_ns"], clocks["drift"]) == ("Int64", "Nullable(Int64)")
    assert "drift_ns" not in clocks
