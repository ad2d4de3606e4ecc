"""Traces that something is open of: listed as running for as long as their process lives, and not a moment longer."""

import time
from typing import Any
from uuid import uuid4

import httpx
import pytest_asyncio

from rankscope_proto.names import SpanKind, SpanStatus
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api.asking import get, walked
from tests.query_api.batches import MS, Row, S, Writer

RUN = "/api/v1/runs/live/traces"
WAITS, WORKS, BROKEN, OVER, GONE = range(1, 6)
"""Lower halves of trace ids: only an open root; an open root over a stored child; one whose child failed; one that
ended after the heartbeat; one of a process that fell silent."""


def stack(now: int, *open_spans: tuple[int, str]) -> Row:
    """What a thread has open: (trace, name), each begun 10 s ago, a little after the one before."""
    return {
        "heartbeat": now,
        "thread": "main",
        "step": 4,
        "stack_trace_hi": [0] * len(open_spans),
        "stack_trace_lo": [trace for trace, _ in open_spans],
        "stack_span_id": [trace * 16 for trace, _ in open_spans],
        "stack_name": [name for _, name in open_spans],
        "stack_kind": [SpanKind.ROLLOUT.code] * len(open_spans),
        "stack_start": [now - 10 * S + place * MS for place, _ in enumerate(open_spans)],
    }


def span(trace: int, now: int, *, status: SpanStatus = SpanStatus.OK, is_root: bool = False) -> Row:
    return {
        "trace_lo": trace,
        "span_id": trace * 16 + (0 if is_root else 1),
        "parent_span_id": 0 if is_root else trace * 16,
        "name": "root" if is_root else "search",
        "kind": SpanKind.TOOL.code,
        "status": status.code,
        "step": 4,
        "start": now - 9 * S,
        "duration": S,
    }


@pytest_asyncio.fixture
async def living(own: Store, api_of_own: httpx.AsyncClient) -> httpx.AsyncClient:
    """The service over a run that goes on, with a process that fell silent two minutes ago."""
    now = time.time_ns()
    names = ((WAITS, "waits"), (WORKS, "works"), (BROKEN, "breaks"), (OVER, "over"))
    open_now = [stack(now, *names)]
    child, failed = span(WORKS, now), span(BROKEN, now, status=SpanStatus.ERROR)
    silent = stack(now - 120 * S, (GONE, "gone"))
    idle = stack(now - 3 * S, (GONE, "ended"))
    writer, ended = Writer("live", 0), Writer("live", 2)
    for batch in (
        writer.seal(sealed_ns=now, spans=[child, failed], open_spans=open_now),
        writer.seal(sealed_ns=now + S, spans=[span(OVER, now, is_root=True)]),
        Writer("live", 1).seal(sealed_ns=now - 120 * S, open_spans=[silent]),
        ended.seal(sealed_ns=now - 3 * S, open_spans=[idle]),
        ended.seal(sealed_ns=now, open_spans=[stack(now)]),
    ):
        insert(own.client, batch, token=uuid4().hex)
    return api_of_own


async def test_open_traces_are_listed_among_the_others_by_the_start_of_their_roots(living: httpx.AsyncClient) -> None:
    traces = {int(trace["trace_id"], 16): trace for trace in await walked(living, RUN, limit=1)}

    assert set(traces) == {WAITS, WORKS, BROKEN, OVER}
    statuses = {trace: (shown["name"], shown["status"], shown["running"]) for trace, shown in traces.items()}
    assert statuses == {
        WAITS: ("waits", "running", 1),
        WORKS: ("works", "running", 1),
        BROKEN: ("breaks", "error", 1),
        OVER: ("root", "ok", 0),
    }
    assert (traces[WAITS]["spans"], traces[WORKS]["spans"], traces[WAITS]["kind"]) == (0, 1, "rollout")


LOOKED_FOR: list[tuple[dict[str, Any], set[int]]] = [
    ({"status": "running"}, {WAITS, WORKS}),
    ({"status": "ok"}, {OVER}),
    ({"status": "error"}, {BROKEN}),
    ({"status": "interrupted"}, set()),
    ({"kind": "rollout", "rank": 0, "step": 4}, {WAITS, WORKS, BROKEN}),
    ({"name": "waits"}, {WAITS}),
    ({"name": "search"}, {WORKS, BROKEN}),
    ({"q": "WORKS search"}, {WORKS}),
    ({"q": f"{WAITS * 16:016x}"}, {WAITS}),
    ({"error_type": "TimeoutError"}, set()),
    ({"min_duration_ms": 500, "status": "running"}, {WORKS}),
]


async def test_what_is_open_is_looked_for_as_well_as_what_is_stored(living: httpx.AsyncClient) -> None:
    for query, expected in LOOKED_FOR:
        for path in (RUN, "/api/v1/traces"):
            page = await get(living, path, **query)

            assert {int(trace["trace_id"], 16) for trace in page["items"]} == expected, query
            assert page["total"] == len(expected)
