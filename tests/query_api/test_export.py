"""Finished spans as JSON lines: every one once, in order, a page at a time."""

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from rankscope_proto.names import EventKind, Severity, SpanStatus
from rankscope_query_api.routes import export
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api.asking import ROLLOUT, RUN, refused
from tests.query_api.batches import MS, START, Row, Writer

EXPORT = "/api/v1/runs/r/traces/export"


def span(span_id: int, trace: int, step: int | None, **fields: Any) -> Row:
    """A span of a trace of the run."""
    return {
        "span_id": span_id,
        "trace_hi": 0xA,
        "trace_lo": trace,
        "name": f"s{span_id}",
        "kind": 1,
        "status": SpanStatus.OK.code,
        "start": START + (span_id % 7) * MS,
        "duration": MS,
        "step": step,
        **fields,
    }


def event(span_id: int, trace: int, name: str) -> Row:
    """Something that happened in a span."""
    of_span: Row = {"span_id": span_id, "trace_hi": 0xA, "trace_lo": trace, "name": name, "payload": '{"a":1}'}
    return {**of_span, "time": START, "kind": EventKind.SPAN_EVENT.value, "severity": Severity.INFO.code}


async def lines(api: httpx.AsyncClient, path: str, **query: int) -> list[dict[str, Any]]:
    """What is exported."""
    answer = await api.get(path, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def ids(exported: Sequence[dict[str, Any]]) -> list[int]:
    """The ids of exported spans."""
    return [int(line["span_id"], 16) for line in exported]


async def test_every_span_of_a_run_is_a_line_whatever_the_pages(
    api_of_own: httpx.AsyncClient, own: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "SPANS_A_PAGE", 3)
    rows = [span(number, number % 4, (None, 3, -5, 9)[number % 4]) for number in range(1, 40)]
    insert(own.client, Writer("r", 0).seal(spans=rows[::2]), token="0")
    insert(own.client, Writer("r", 1).seal(spans=rows[1::2]), token="1")
    insert(own.client, Writer("r", 2).seal(spans=rows[2:9]), token="2")

    exported = await lines(api_of_own, EXPORT)

    key = [(-1 if one["step"] is None else one["step"], one["rank"], int(one["start_ns"])) for one in exported]
    assert key == sorted(key)
    assert {one["run_id"] for one in exported} == {"r"}
    assert sorted(ids(exported)) == sorted([*range(1, 40), *range(3, 10)])


async def test_copies_of_a_span_are_one_line_also_where_a_page_ends_between_them(
    api_of_own: httpx.AsyncClient, own: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "SPANS_A_PAGE", 2)
    rows = [span(number, 1, 1, stated_rank=0) for number in range(1, 8)]
    for rank in range(3):
        insert(own.client, Writer("r", rank).seal(spans=rows), token=str(rank))

    assert sorted(ids(await lines(api_of_own, EXPORT))) == [1, 2, 3, 4, 5, 6, 7]


async def test_a_trace_is_exported_with_the_events_of_its_spans(api_of_own: httpx.AsyncClient, own: Store) -> None:
    rows = [span(1, 1, 4), span(2, 1, None), span(1, 2, 4)]
    events = [event(1, 1, "first"), event(1, 1, "second"), event(1, 2, "elsewhere")]
    insert(own.client, Writer("r", 0).seal(spans=rows, events=events))

    exported = await lines(api_of_own, f"/api/v1/runs/r/traces/{0xA:016x}{1:016x}/export")

    assert ids(exported) == [2, 1]
    assert [(one["name"], one["attributes"]) for one in exported[1]["events"]] == [
        ("first", {"a": 1}),
        ("second", {"a": 1}),
    ]


async def test_a_window_of_steps_is_exported(api_of_own: httpx.AsyncClient, own: Store) -> None:
    insert(own.client, Writer("r", 0).seal(spans=[span(step + 1, 1, step) for step in range(6)]))

    exported = await lines(api_of_own, EXPORT, min_step=2, max_step=3)

    assert [one["step"] for one in exported] == [2, 3]


async def test_head_tells_of_an_export_without_making_it(api: httpx.AsyncClient) -> None:
    answer = await api.head(f"{RUN}/traces/export")

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-disposition"] == 'attachment; filename="bright-otter.jsonl"'


async def test_what_is_not_there_cannot_be_exported(api: httpx.AsyncClient) -> None:
    no_run = await refused(api, "/api/v1/runs/nobody/traces/export", status=404)
    no_trace = await refused(api, f"{RUN}/traces/{'1' * 32}/export", status=404)
    no_window = await refused(api, f"{RUN}/traces/export", status=422, min_step=2, max_step=1)

    assert (no_run["code"], no_trace["code"], no_window["code"]) == ("unknown_run", "unknown_trace", "invalid_request")


async def test_the_export_of_a_trace_holds_what_its_tree_does(api: httpx.AsyncClient) -> None:
    exported = await lines(api, f"{RUN}/traces/{ROLLOUT}/export")

    assert [(one["name"], one["trace_id"]) for one in exported] == [("rollout", ROLLOUT), ("search", ROLLOUT)]
