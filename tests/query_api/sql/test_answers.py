"""What statements are answered, over ClickHouse's HTTP interface and with chDB in the process."""

import csv
import io
import threading
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pyarrow as pa
import pytest

from rankscope_query_api import encodings
from rankscope_query_api.encodings import Rows
from tests.query_api import story
from tests.query_api.sql.sending import refused, row, rows, send

ANSWERS: dict[str, Any] = {
    "SELECT 1 AS one": [{"one": 1}],
    "SELECT cause, count FROM gaps WHERE cause = 'ring_full'": [{"cause": "ring_full", "count": 3}],
    "SELECT count() AS n FROM metrics WHERE name = 'loss' AND step < 10 AND rank = 1": [{"n": 10}],
    "SELECT DISTINCT role FROM tensor_stats ORDER BY role LIMIT 2": [{"role": "activation"}, {"role": "grad"}],
    "SELECT rank, step FROM tensor_stats WHERE nonfinite_count > 0 AND role = 'activation'": [{"rank": 1, "step": 14}],
    "WITH slow AS (SELECT rank, max(duration_ns) AS d FROM spans WHERE phase = 'input' GROUP BY rank) "
    "SELECT rank FROM slow ORDER BY d DESC LIMIT 1": [{"rank": story.SLOW_RANK}],
    "SELECT s.rank AS rank, any(m.value) AS loss FROM spans s JOIN metrics m USING (rank, step) "
    "WHERE s.step = 10 AND s.name = 'step' GROUP BY rank ORDER BY rank LIMIT 1": [{"rank": 0, "loss": 3.0}],
    "SELECT name, rank FROM spans WHERE name IN ('rollout', 'nothing') AND parent_span_id IS NULL": [
        {"name": "rollout", "rank": 0}
    ],
    "SELECT arrayMap(x -> x * 2, shape) AS twice FROM tensor_stats LIMIT 1": [{"twice": [8, 32]}],
    "SELECT COUNTIF(rank > 1) AS high, uniqExact(rank) AS ranks FROM spans WHERE name = 'step' AND step = 3": [
        {"high": 2, "ranks": 4}
    ],
    "SELECT SpanName, StatusCode, SpanAttributes['Engine'] AS engine, ServiceName FROM otel_traces "
    "WHERE StatusCode = 'Error'": [
        {"SpanName": "search", "StatusCode": "Error", "engine": "Harbour", "ServiceName": story.RUN}
    ],
    "SELECT count() AS n FROM (SELECT rank FROM gaps UNION ALL SELECT rank FROM events WHERE kind = 'nothing')": [
        {"n": 5}
    ],
    "SELECT span_id, parent_span_id, link_trace_id FROM spans WHERE name = 'search'": [
        {
            "span_id": "0000000000000002",
            "parent_span_id": "0000000000000001",
            "link_trace_id": ["00000000000000070000000000000008"],
        }
    ],
    "SELECT toStartOfHour(start) AS hour, count() AS n FROM spans WHERE name = 'rollout' GROUP BY ALL": [
        {"hour": "2026-11-29T17:00:00Z", "n": 1}
    ],
    "SELECT rank, max(rank) OVER (ORDER BY rank ROWS BETWEEN 1 FOLLOWING AND 1 FOLLOWING) AS next FROM spans "
    "WHERE name = 'step' AND step = 1 LIMIT 1": [{"rank": 0, "next": 1}],
}
"""Statements and their rows, which follow from the story."""


def arrow(answer: httpx.Response) -> Any:
    """The table of an Arrow stream; the library has no types."""
    return cast("Any", pa.ipc.open_stream(answer.content)).read_all()


@pytest.mark.parametrize("query", ANSWERS)
async def test_a_statement_is_answered_with_the_rows_that_the_story_has(api: httpx.AsyncClient, query: str) -> None:
    assert await rows(api, query) == ANSWERS[query]


async def test_an_answer_names_its_columns_with_their_types_and_nameless_ones_as_they_were_written(
    client: httpx.AsyncClient,
) -> None:
    answer = await send(client, "SELECT start, count( * ), max(rank)+1 FROM spans GROUP BY start LIMIT 1")

    assert answer.json()["columns"] == [
        {"name": "start", "type": "DateTime64(9, 'UTC')"},
        {"name": "count(*)", "type": "UInt64"},
        {"name": "max(rank) + 1", "type": "Int64"},
    ]
    assert answer.json()["items"][0]["count(*)"] >= 1


async def test_times_are_iso_with_nanoseconds_beside_the_number_as_text(client: httpx.AsyncClient) -> None:
    first = await row(client, "SELECT start, start_ns FROM spans ORDER BY start_ns, span_id LIMIT 1")

    assert first == {"start": "2026-11-29T17:01:53.000000000Z", "start_ns": "1795971713000000000"}


async def test_what_json_has_no_number_for_is_a_word(client: httpx.AsyncClient) -> None:
    found = await row(
        client, "SELECT 0 / 0 AS a, 1 / 0 AS b, -1 / 0 AS c, l2 FROM tensor_stats WHERE isNaN(l2) LIMIT 1"
    )

    assert found == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "l2": "NaN"}


async def test_bytes_that_are_no_text_are_answered_all_the_same(client: httpx.AsyncClient) -> None:
    for form in ("json", "csv", "arrow"):
        answer = await send(client, "SELECT unhex('ff') AS bad, char(0) AS zero", format=form)

        assert answer.status_code == 200


async def test_an_answer_is_cut_at_its_limit_and_says_so(client: httpx.AsyncClient) -> None:
    cut = (await send(client, "SELECT rank FROM spans", limit=3)).json()
    whole = (await send(client, "SELECT rank FROM spans LIMIT 3", limit=3)).json()

    assert (cut["returned"], cut["truncated"], cut["total"], len(cut["items"])) == (3, True, None, 3)
    assert "limit of 3 rows" in cut["warnings"][0]
    assert (whole["returned"], whole["truncated"], whole["total"], whole["warnings"]) == (3, False, 3, [])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT rank FROM spans LIMIT 100",
        "SELECT rank FROM spans LIMIT {n:UInt64}",
        "SELECT rank FROM spans UNION ALL SELECT rank FROM spans",
        "SELECT rank, name FROM spans LIMIT 50 BY rank",
        "(SELECT rank FROM spans)",
        "SELECT rank FROM spans LIMIT 100 OFFSET 5",
    ],
)
async def test_no_statement_brings_back_more_than_the_limit(client: httpx.AsyncClient, query: str) -> None:
    parameters = {"n": 100} if "{n" in query else {}

    answer = (await send(client, query, limit=7, parameters=parameters)).json()

    assert (answer["returned"], answer["truncated"]) == (7, True)


async def test_a_run_is_all_that_is_read_where_one_is_named(client: httpx.AsyncClient) -> None:
    query = "SELECT DISTINCT run_id FROM metrics ORDER BY run_id"

    assert await rows(client, query) == [{"run_id": story.RUN}, {"run_id": story.OTHER_RUN}]
    assert await rows(client, query, run=story.OTHER_RUN) == [{"run_id": story.OTHER_RUN}]
    assert (await refused(client, query, status=404, run="secret-run"))["code"] == "unknown_run"


async def test_csv_tells_a_missing_value_from_an_empty_text(api: httpx.AsyncClient) -> None:
    query = (
        "SELECT step, '' AS e, 'a\"b,c\\n' AS t, [1, 2] AS l, true AS b, 0 / 0 AS f FROM metrics ORDER BY step LIMIT 1"
    )

    answer = await send(api, query, format="csv")

    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text == 'step,e,t,l,b,f\r\n0,"","a""b,c\n","[1,2]",true,NaN\r\n'
    assert (await send(api, "SELECT NULL AS n, 1 AS one", format="csv")).text == "n,one\r\n,1\r\n"
    assert next(csv.reader(io.StringIO(answer.text[answer.text.index("0,") :]))) == [
        "0",
        "",
        'a"b,c\n',
        "[1,2]",
        "true",
        "NaN",
    ]


async def test_arrow_keeps_types_and_all_bits(api: httpx.AsyncClient) -> None:
    query = (
        "SELECT start, toUInt64(18446744073709551615) AS u, attributes, shape, step FROM spans, tensor_stats LIMIT 2"
    )

    answer = await send(api, query.replace(", step", ", microbatch"), format="arrow")
    table = arrow(answer)

    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["start"] == "timestamp[ns, tz=UTC]"
    assert (kinds["u"], kinds["shape"], kinds["attributes"]) == ("uint64", "list<item: uint64>", "map<string, string>")
    assert table.column("u").to_pylist() == [2**64 - 1] * 2


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("text/csv; q=0, application/json", "application/json"),
        ("text/csv", "text/csv; charset=utf-8"),
        ("application/vnd.apache.arrow.stream, */*", "application/vnd.apache.arrow.stream"),
        ("text/html, */*;q=0.8", "application/json"),
    ],
)
async def test_the_accept_header_chooses_the_format(client: httpx.AsyncClient, accept: str, media: str) -> None:
    answer = await client.post("/api/v1/sql", json={"query": "SELECT 1 AS x"}, headers={"accept": accept})

    assert answer.headers["content-type"] == media


async def test_what_json_says_beside_the_rows_is_in_headers_of_the_other_formats(client: httpx.AsyncClient) -> None:
    answer = await send(client, "SELECT rank FROM spans", limit=2, format="csv")

    said = {name: value for name, value in answer.headers.items() if name.startswith("x-rankscope")}
    assert said["x-rankscope-truncated"] == "true"
    assert said["x-rankscope-returned"] == "2"
    assert said["x-rankscope-warnings"] == "1"


async def test_an_answer_without_rows_has_its_columns_in_every_format(client: httpx.AsyncClient) -> None:
    query = "SELECT rank, start FROM spans WHERE name = 'never'"

    assert (await send(client, query)).json()["items"] == []
    assert (await send(client, query, format="csv")).text == "rank,start\r\n"
    table = arrow(await send(client, query, format="arrow"))
    assert (table.num_rows, table.schema.names) == (0, ["rank", "start"])


@pytest.mark.parametrize(("form", "objects"), [("json", 1), ("csv", 0), ("arrow", 0)])
async def test_an_answer_is_written_once_and_not_by_the_thread_that_answers_others(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, form: str, objects: int
) -> None:
    written: list[int] = []
    made: list[int] = []
    items, write = Rows.items, encodings.response

    def made_items(rows: Rows) -> Iterator[dict[str, Any]]:
        made.append(threading.get_ident())
        return items(rows)

    def wrote(*given: Any, **named: Any) -> Any:
        written.append(threading.get_ident())
        return write(*given, **named)

    monkeypatch.setattr(Rows, "items", made_items)
    monkeypatch.setattr("rankscope_query_api.routes.sql.response", wrote)

    answer = await send(client, "SELECT rank FROM spans", format=form)

    assert answer.status_code == 200
    assert (len(made), len(written)) == (objects, 1)
    assert threading.get_ident() not in made + written
