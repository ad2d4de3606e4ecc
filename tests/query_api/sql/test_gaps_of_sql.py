"""An answer to a statement tells the absences of what it could have read: an empty one may lie over a gap."""

from typing import Any

import httpx
import pytest

from tests.query_api import story
from tests.query_api.asking import ask
from tests.query_api.sql.sending import send

RING_FULL, SAMPLED = ("lost", "ring_full", "spans", 3), ("not_captured", "sampled", "tensor_stats", None)


def told(answer: httpx.Response) -> list[tuple[Any, ...]]:
    """The gaps of an answer, each once for all that it says of them here."""
    assert answer.status_code == 200, answer.text
    words = ("class", "cause", "data_kind", "count")
    return sorted({tuple(gap[word] for word in words) for gap in answer.json()["gaps"]})


@pytest.mark.parametrize(
    ("query", "gaps"),
    [
        ("SELECT count() AS n FROM spans", [RING_FULL]),
        ("SELECT name FROM spans WHERE name = 'nothing'", [RING_FULL]),
        ("SELECT SpanName FROM otel_traces LIMIT 1", [RING_FULL]),
        ("SELECT l2 FROM tensor_stats LIMIT 1", [SAMPLED]),
        ("SELECT rank FROM spans WHERE rank IN (SELECT rank FROM tensor_stats)", [RING_FULL, SAMPLED]),
        ("WITH few AS (SELECT rank FROM tensor_stats) SELECT 1 AS one", [SAMPLED]),
        ("SELECT rank FROM modules", []),
        ("SELECT 1 AS one", []),
    ],
)
async def test_a_statement_is_told_the_gaps_of_the_views_that_it_reads(
    client: httpx.AsyncClient, query: str, gaps: list[tuple[Any, ...]]
) -> None:
    of_project, of_run = await send(client, query), await send(client, query, run=story.RUN)

    assert told(of_project) == told(of_run) == gaps
    assert {gap["run_id"] for gap in of_project.json()["gaps"]} <= {story.RUN}


async def test_a_statement_and_a_query_are_told_the_same_gaps(client: httpx.AsyncClient) -> None:
    for run in ({"run": story.RUN}, {}):
        sql = await send(client, "SELECT name FROM spans LIMIT 1", **run)
        tql = await ask(client, "exists(span.name)", limit=1, **run)

        assert sql.json()["gaps"] == tql.json()["gaps"] != []


async def test_a_statement_is_told_the_gaps_of_its_own_project_only(client: httpx.AsyncClient) -> None:
    gaps = told(await send(client, "SELECT name FROM spans", project="other"))

    assert [cause for _, cause, _, _ in gaps] == ["secret"]


@pytest.mark.parametrize("form", ["csv", "arrow"])
async def test_other_formats_say_in_headers_how_many_gaps_there_are(api: httpx.AsyncClient, form: str) -> None:
    answer = await send(api, "SELECT name FROM spans WHERE name = 'nothing'", format=form)

    assert (answer.headers["x-rankscope-gaps"], answer.headers["x-rankscope-gaps-lost"]) == ("1", "1")
