"""A TQL query's answer is written as CSV and as an Arrow stream too."""

from typing import Any, cast

import httpx
import pyarrow as pa

from tests.query_api import story
from tests.query_api.asking import ask

QUERY = 'tensor.role == "activation" and tensor.nonfinite_count > 0 | select rank, step, tensor.nonfinite_count'


async def test_a_querys_answer_as_csv_has_a_line_for_each_row(api: httpx.AsyncClient) -> None:
    answer = await ask(api, QUERY, run=story.RUN, format="csv")

    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.text == "rank,step,nonfinite_count\r\n1,14,3\r\n"
    assert (answer.headers["x-rankscope-total"], answer.headers["x-rankscope-truncated"]) == ("1", "false")
    assert int(answer.headers["x-rankscope-gaps"]) > 0


async def test_a_querys_answer_as_arrow_has_the_rows_that_json_has(client: httpx.AsyncClient) -> None:
    query = 'span.name == "rollout"'

    (item,) = (await ask(client, query)).json()["items"]
    streamed = (await ask(client, query, format="arrow")).content
    (row,) = cast("list[dict[str, Any]]", cast("Any", pa.ipc.open_stream(streamed)).read_all().to_pylist())

    assert set(row) == set(item)
    assert (row["name"], row["span_id"], str(row["start_ns"])) == (item["name"], item["span_id"], item["start_ns"])


async def test_the_next_page_of_another_format_is_in_a_header(client: httpx.AsyncClient) -> None:
    first = await ask(client, "span.duration >= 0ns", limit=2, format="csv")
    second = await ask(client, "span.duration >= 0ns", limit=2, after=first.headers["x-rankscope-next"], format="csv")

    assert first.headers["x-rankscope-truncated"] == "true"
    assert first.text.splitlines()[0] == second.text.splitlines()[0]
    assert first.text.splitlines()[1:] != second.text.splitlines()[1:]
