"""Traces by step, beside a metric."""

import itertools
import time
from typing import Any

import httpx

from rankscope_proto.names import SpanKind, SpanStatus
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api import story
from tests.query_api.asking import RUN, get, refused, walked
from tests.query_api.batches import MS, START, Row, Writer, heard

STEPS = "/api/v1/runs/r/traces/steps"
IDS = itertools.count(1)


def span(trace: int, step: int | None, **fields: Any) -> Row:
    """A span of a trace, of 2 ms unless told otherwise."""
    return {
        "span_id": next(IDS),
        "trace_hi": 1,
        "trace_lo": trace,
        "name": "rollout",
        "kind": SpanKind.ROLLOUT.code,
        "status": SpanStatus.OK.code,
        "start": START,
        "duration": 2 * MS,
        "step": step,
        **fields,
    }


def point(step: int | None, value: float) -> Row:
    """A value of the metric."""
    return {"name": "loss", "step": step, "value": value, "time": START}


async def test_a_trace_is_counted_once_at_its_least_step_with_all_its_spans(
    api_of_own: httpx.AsyncClient, own: Store
) -> None:
    usage = {"metrics": {"gen_ai.usage.input_tokens": 5.0}}
    failed = span(1, 7, status=SpanStatus.ERROR.code, duration=6 * MS)
    rows = [span(1, 3, **usage), failed, span(1, None, **usage), span(2, 3), span(3, 9), span(4, None)]
    insert(own.client, Writer("r", 0).seal(spans=rows))

    answer = await get(api_of_own, STEPS)

    three, nine = answer["items"]
    assert [three[name] for name in ("step", "traces", "error_traces", "spans", "errors")] == [3, 2, 1, 4, 1]
    assert (three["mean_duration_ns"], three["max_duration_ns"]) == (str(4 * MS), str(6 * MS))
    assert (str(three["input_tokens"]), nine["input_tokens"], nine["step"]) == ("10", None, 9)  # not 10.0
    assert (answer["total"], answer["traces"], answer["stepless_traces"], answer["error_traces"]) == (2, 4, 1, 1)


async def test_a_metric_stands_beside_the_traces_and_its_own_steps_are_there_too(
    api_of_own: httpx.AsyncClient, own: Store
) -> None:
    points = [point(3, 1.0), point(3, 2.0), point(5, float("nan")), point(None, 9.0)]
    insert(own.client, Writer("r", 0).seal(spans=[span(1, 3), span(2, 4)], scalars=points))

    items = (await get(api_of_own, STEPS, metric="loss"))["items"]

    assert [(one["step"], one["traces"]) for one in items] == [(3, 1), (4, 1), (5, 0)]
    assert items[0]["metric"] == {"points": 2, "mean": 1.5, "least": 1.0, "greatest": 2.0}
    assert (items[1]["metric"], items[2]["metric"]["mean"], items[2]["max_duration_ns"]) == (None, "NaN", None)


async def test_the_buckets_are_paged_within_their_window(api_of_own: httpx.AsyncClient, own: Store) -> None:
    insert(own.client, Writer("r", 0).seal(spans=[span(step, step) for step in range(10)]))

    items = await walked(api_of_own, STEPS, limit=2, min_step=2, max_step=6)

    assert [one["step"] for one in items] == [2, 3, 4, 5, 6]


async def test_a_span_that_is_stored_twice_counts_once(api_of_own: httpx.AsyncClient, own: Store) -> None:
    rows = [span(1, 3, status=SpanStatus.ERROR.code)]
    insert(own.client, Writer("r", 0).seal(spans=rows), token="0")
    insert(own.client, Writer("r", 1).seal(spans=rows), token="1")

    (three,) = (await get(api_of_own, STEPS))["items"]

    assert (three["spans"], three["errors"], three["traces"]) == (1, 1, 1)


async def test_traces_that_run_are_counted_at_the_step_they_began_at(api_of_own: httpx.AsyncClient, own: Store) -> None:
    now = time.time_ns()
    beat: Row = {"heartbeat": now, "thread": "main", "step": 8, "stack_span_id": [91, 92], "stack_name": ["a", "b"]}
    beat |= {"stack_start": [now, now], "stack_trace_hi": [1, 1], "stack_trace_lo": [1, 2], "stack_kind": [1, 1]}
    insert(own.client, Writer("r", 0).seal(sealed_ns=now, spans=[span(1, 3)], open_spans=[beat]))
    heard(own, seconds_ago=1)

    items = (await get(api_of_own, STEPS))["items"]

    assert [(one["step"], one["traces"], one["running_traces"]) for one in items] == [(3, 1, 1), (8, 0, 1)]


async def test_the_steps_of_a_training_are_told_from_its_other_traces(api: httpx.AsyncClient) -> None:
    answer = await get(api, f"{RUN}/traces/steps", min_step=5, max_step=5)

    (five,) = answer["items"]
    assert (five["traces"], five["step_traces"], answer["traces"]) == (2, 1, story.STEPS + 2)


async def test_an_unknown_metric_and_a_window_that_is_none_are_refused(api: httpx.AsyncClient) -> None:
    unknown = await refused(api, f"{RUN}/traces/steps", status=404, metric="los")
    swapped = await refused(api, f"{RUN}/traces/steps", status=422, min_step=3, max_step=2)

    assert (unknown["code"], unknown["hint"]) == ("unknown_metric", "the nearest known one is 'loss'")
    assert "min_step is 3" in swapped["message"]
