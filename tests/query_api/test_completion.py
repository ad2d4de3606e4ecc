"""What could be written next: names from the language, keys and values from what is stored, of this project only."""

from typing import Any

import httpx
import pytest

from rankscope.tql.completion import complete as completed
from rankscope_query_api.tql_sql.seen import keys_statement, values_statement
from tests.query_api import story
from tests.query_api.asking import error_in


async def complete(api: httpx.AsyncClient, query: str, **body: Any) -> dict[str, Any]:
    """What the service suggests behind a text."""
    answer = await api.post("/api/v1/tql/complete", json={"query": query, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def texts(api: httpx.AsyncClient, query: str, **body: Any) -> list[str]:
    return [item["text"] for item in (await complete(api, query, **body))["items"]]


async def test_fields_are_suggested_with_their_types_and_meanings(client: httpx.AsyncClient) -> None:
    answer = await complete(client, "tensor.nonf")

    (item,) = answer["items"]
    assert (item["text"], item["kind"]) == ("tensor.nonfinite_count", "field")
    assert item["detail"].startswith("integer. ")
    assert (answer["start"], answer["end"], answer["truncated"]) == (0, 11, False)


async def test_a_closed_set_of_words_is_suggested_without_asking_the_store(client: httpx.AsyncClient) -> None:
    assert await texts(client, 'span.status == "o') == ['"ok"']


async def test_attribute_keys_that_were_seen_are_suggested_texts_and_numbers(client: httpx.AsyncClient) -> None:
    assert await texts(client, "attr.") == ["attr.Engine", "attr.batch", "attr.device"]
    assert await texts(client, 'attr."dev') == ["attr.device"]
    assert await texts(client, "metric.r") == ["metric.reward"]


async def test_values_that_were_seen_are_suggested_the_most_frequent_first(client: httpx.AsyncClient) -> None:
    names = await texts(client, 'span.name == "', run=story.RUN)

    assert set(names) == {
        '"step"',
        '"input"',
        '"forward"',
        '"backward"',
        '"optimizer"',
        '"layers.2"',
        '"rollout"',
        '"search"',
    }
    assert names[-2:] == ['"rollout"', '"search"']
    devices = await texts(client, 'attr.device in ["cuda:0", "cuda:')
    assert sorted(devices) == [f'"cuda:{rank}"' for rank in range(4)]


async def test_keys_and_values_of_another_project_are_not_told(client: httpx.AsyncClient) -> None:
    assert '"secret"' not in await texts(client, 'span.name == "s')
    assert await texts(client, 'run.id == "secret') == []


async def test_behind_a_stage_its_columns_are_suggested(client: httpx.AsyncClient) -> None:
    query = "tensor.role == 'grad' | across rank: spread(tensor.l2) by step | where "

    assert (await texts(client, query))[:2] == ["step", "spread"]


async def test_the_cursor_may_stand_inside_the_text(client: httpx.AsyncClient) -> None:
    answer = await complete(client, "span.ki == 'tool'", position=7)

    assert [item["text"] for item in answer["items"]] == ["span.kind"]
    assert (answer["start"], answer["end"]) == (0, 7)


async def test_more_than_the_limit_is_cut_and_said(client: httpx.AsyncClient) -> None:
    answer = await complete(client, "", limit=3)

    assert (len(answer["items"]), answer["truncated"]) == (3, True)


@pytest.mark.parametrize("text", [")))", "span.name === ", "\x00", "a" * 5000, '"' * 999, "# a remark"])
async def test_where_nothing_fits_nothing_is_suggested(client: httpx.AsyncClient, text: str) -> None:
    assert await texts(client, text) in ([], ["|"])


async def test_a_text_beyond_the_limit_of_queries_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/tql/complete", json={"query": "x" * 9000})

    assert error_in(answer, status=400)["code"] == "text_too_long"


async def test_a_prefix_that_is_sql_stays_a_value(client: httpx.AsyncClient) -> None:
    assert await texts(client, "span.name == \"'; DROP TABLE spans") == []


def test_scopes_without_stored_keys_are_not_asked_for() -> None:
    assert keys_statement("run.config", project="p", run=None) is None


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ('attr."odd key" == "x', ("attr", "odd key")),
        ('hit.seen."module.path" == "lay', ("hit.seen", "module.path")),
        ("hit.seen.module.path in ['a', ", ("hit.seen", "module.path")),
        ('metric.reward == "', None),
        ('run.config.device == "', None),
    ],
)
def test_values_are_asked_for_where_a_scope_holds_texts(text: str, asked: tuple[str, str] | None) -> None:
    assert completed(text).values_of == asked


def test_what_a_breakpoint_saw_is_read_from_its_hits() -> None:
    statement = values_statement(("hit.seen", "module.path"), project="p", run=None, prefix="lay", limit=9)

    assert statement
    assert "SELECT arrayElement(seen_texts, {key:String}) AS found FROM hits " in statement.sql
    assert statement.parameters["key"] == "module.path"
