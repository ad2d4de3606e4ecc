"""What a query becomes: its text as the formatter writes it, its SQL, what is joined; the SQL answers the same."""

import re
from typing import Any

import httpx
import pytest

from rankscope import tql
from rankscope_query_api.tql_sql import compile_query
from rankscope_query_api.tql_sql.layout import laid_out
from tests.ground.stores import Store
from tests.query_api import story
from tests.query_api.asking import error_in


async def explain(api: httpx.AsyncClient, query: str, **body: Any) -> dict[str, Any]:
    """The service's explanation of a query."""
    answer = await api.post("/api/v1/tql/explain", json={"query": query, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_text_is_as_the_formatter_writes_it_and_the_rows_are_named(client: httpx.AsyncClient) -> None:
    answer = await explain(client, "tensor.nonfinite_count>0|first")

    assert answer["text"] == "tensor.nonfinite_count > 0 | first"
    assert answer["entity"] == "tensor"
    assert answer["joins"] == []
    assert {"rank", "step", "name"} <= set(answer["columns"])


async def test_values_are_parameters_and_no_part_of_the_sql(client: httpx.AsyncClient) -> None:
    answer = await explain(client, 'span.name == "odd \' name"', run=story.RUN)

    assert "odd ' name" not in answer["sql"]
    assert "odd ' name" in answer["parameters"].values()
    assert answer["parameters"]["project"] == "default"
    assert answer["parameters"]["run"] == story.RUN
    assert "PREWHERE" in answer["sql"]


async def test_a_query_that_names_two_scopes_says_how_they_are_joined(client: httpx.AsyncClient) -> None:
    answer = await explain(client, "tensor.nonfinite_count > 0 and span.duration > 1s")

    assert answer["entity"] == "tensor"
    assert any("span" in join for join in answer["joins"])


async def test_nothing_is_run_a_run_that_is_not_there_is_explained_too(client: httpx.AsyncClient) -> None:
    assert (await explain(client, "rank == 0 and tensor.l2 > 0", run="nobody"))["sql"]


async def test_an_error_points_as_that_of_the_query_does(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/tql/explain", json={"query": "tensor.l3 > 0"})

    error = error_in(answer, status=400)
    assert (error["code"], error["position"]["column"]) == ("unknown_field", 1)


async def test_what_else_is_read_is_said_once_also_inside_of_other_parts(client: httpx.AsyncClient) -> None:
    text = "span.kind == 'rollout' and run.name == 'x' >> span.status == 'error' and span.child_count > 0"

    words = [join.partition(":")[0] for join in (await explain(client, text))["joins"]]

    assert words == ["related", "run", "related", "tree"]


async def test_a_look_back_is_said(client: httpx.AsyncClient) -> None:
    (join,) = (await explain(client, "tensor.l2 > 3 * prev(tensor.l2)"))["joins"]

    assert join.startswith("history: ")


@pytest.mark.parametrize(
    "text",
    [
        "tensor.l2 > 3 * prev(tensor.l2)",
        "span.kind == 'rollout' >> span.status == 'error'",
        "tensor.role == 'grad' | across rank: spread(tensor.l2) by step, tensor.name | where spread > 0.01 | first",
    ],
)
def test_laying_sql_out_changes_white_space_only(text: str) -> None:
    compiled = compile_query(tql.check(tql.parse(text)), project="p", run="r")

    shown = laid_out(compiled.sql)

    assert re.sub(r"\s+", "", shown) == re.sub(r"\s+", "", compiled.sql)
    assert len(shown.splitlines()) > 5
    assert all(line == line.rstrip() for line in shown.splitlines())


async def test_the_sql_of_an_explanation_gives_the_rows_of_the_query(client: httpx.AsyncClient, told: Store) -> None:
    answer = await explain(client, "tensor.nonfinite_count > 0 | count() by rank", run=story.RUN)

    rows = told.client.query(answer["sql"], parameters=answer["parameters"]).result_rows

    assert [row[:2] for row in rows] == [(0, 1), (1, 2), (2, 1), (3, 1)]
