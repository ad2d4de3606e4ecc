"""The list of traces: every filter against what a plain loop over the spans says, however batches were cut."""

import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.names import SpanKind, SpanStatus
from rankscope_proto.v1 import batch_pb2 as pb
from rankscope_query_api.reading.trace_filters import TraceSets
from rankscope_query_api.values import TraceFilter, TraceScope
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import error_in, get, refused, walked
from tests.query_api.batches import MS, START, Row, S, Writer
from tests.query_api.conftest import over

RUN = "/api/v1/runs/many/traces"
PROJECT = "/api/v1/traces"
OK, ERROR, INTERRUPTED, CANCELLED = (one.code for one in SpanStatus)
TRACES = 24
Test = Callable[[Sequence[Row]], bool]


def arrives(store: Store, batch: pb.Batch) -> None:
    """One insert, which is a part of its own."""
    insert(store.client, batch, token=uuid4().hex)


def made_spans(seed: int) -> list[Row]:
    """Spans of some traces, in the order of their starts; every third trace has its spans far apart."""
    drawn = random.Random(seed)
    spans: list[Row] = []
    for number in range(TRACES):
        begin = START + number * 10 * MS
        statuses = drawn.choice(
            [(OK,), (OK, ERROR), (OK, CANCELLED), (INTERRUPTED,), (OK, INTERRUPTED), (ERROR, CANCELLED)]
        )
        count = drawn.randrange(1, 9)
        spans += [_span(drawn, number, place, begin=begin, statuses=statuses) for place in range(count)]
    return sorted(spans, key=lambda span: span["start"])


def _span(drawn: random.Random, number: int, place: int, *, begin: int, statuses: Sequence[int]) -> Row:
    apart = 40 * MS if number % 3 == 0 else MS
    return {
        "trace_hi": number % 5,
        "trace_lo": number + 1,
        "span_id": (number << 8) + place + 1,
        "parent_span_id": (number << 8) + 1 if place else 0,
        "name": drawn.choice(["rollout.step2.g2", "search", "Generate"]),
        "kind": drawn.choice([SpanKind.ROLLOUT, SpanKind.TOOL, SpanKind.MODEL]).code,
        "status": drawn.choice(statuses),
        "start": begin + place * apart,
        "duration": drawn.randrange(1, 30) * MS,
        "step": drawn.choice([None, number // 4, number // 4 + 1]),
        "error_type": drawn.choice(["", "TimeoutError"]),
        "rollout_id": drawn.choice(["", f"episode-{number % 7}"]),
        "attributes": {"model": drawn.choice(["small", "Grösse"])},
        "numbers": {"attempt": float(drawn.randrange(3))},
        "metrics": {"gen_ai.usage.input_tokens": 7.0},
    }


def status_of(spans: Sequence[Row]) -> str:
    found = {span["status"] for span in spans}
    if ERROR in found:
        return "error"
    if CANCELLED in found:
        return "cancelled"
    return "interrupted" if found == {INTERRUPTED} else "ok"


def start_of(spans: Sequence[Row]) -> int:
    return min(span["start"] for span in spans)


def duration_of(spans: Sequence[Row]) -> int:
    return max(span["start"] + span["duration"] for span in spans) - start_of(spans)


def anything(_: Sequence[Row]) -> bool:
    return True


def nothing(_: Sequence[Row]) -> bool:
    return False


def has_status(word: str) -> Test:
    return lambda spans: status_of(spans) == word


def some(test: Callable[[Row], bool]) -> Test:
    return lambda spans: any(test(span) for span in spans)


def says(word: str) -> Test:
    def is_in(span: Row) -> bool:
        texts = [span["name"], span["error_type"], span["rollout_id"], *span["attributes"].values()]
        return any(word.lower() in text.lower() for text in texts)

    return some(is_in)


MIDDLE = START + 200 * MS
FILTERS: list[tuple[dict[str, Any], Test]] = [
    ({}, anything),
    ({"kind": "tool"}, some(lambda span: span["kind"] == SpanKind.TOOL.code)),
    ({"kind": "all", "status": "all"}, anything),
    ({"name": "search", "kind": "model"}, some(lambda span: span["name"] == "search" and span["kind"] == 3)),
    ({"error_type": "TimeoutError", "step": 3}, some(lambda span: span["error_type"] != "" and span["step"] == 3)),
    ({"min_step": 2, "max_step": 4}, some(lambda span: span["step"] is not None and 2 <= span["step"] <= 4)),
    ({"min_step": -5}, some(lambda span: span["step"] is not None)),
    ({"max_step": 1}, some(lambda span: span["step"] is not None and span["step"] <= 1)),
    ({"rank": 1}, some(lambda span: span["span_id"] % 2 == 1)),
    ({"attribute": "model=Grösse"}, some(lambda span: span["attributes"]["model"] == "Grösse")),
    (
        {"attribute": ["model=small", "attempt=2"]},
        some(lambda span: span["attributes"]["model"] == "small" and span["numbers"]["attempt"] == 2),
    ),
    ({"attribute": "none="}, nothing),
    ({"attribute": "mode=lsmall"}, nothing),
    *(({"status": word}, has_status(word)) for word in ("ok", "error", "cancelled", "interrupted")),
    ({"status": "running"}, nothing),
    ({"min_duration_ms": 30, "max_duration_ms": 90.5}, lambda spans: 30 * MS <= duration_of(spans) <= 90.5 * MS),
    ({"from": MIDDLE}, lambda spans: start_of(spans) >= MIDDLE),
    ({"to": MIDDLE}, lambda spans: start_of(spans) < MIDDLE),
    ({"q": "rollout STEP"}, says("rollout.step")),
    ({"q": "timeout episode-3"}, lambda spans: says("timeout")(spans) and says("episode-3")(spans)),
    ({"q": "grösse"}, says("grösse")),
    ({"q": "2501"}, some(lambda span: "2501" in f"{span['span_id']:016x}")),
    (
        {"q": "search", "kind": "tool", "status": "error", "to": MIDDLE + 50 * MS},
        lambda spans: (
            says("search")(spans)
            and some(lambda span: span["kind"] == SpanKind.TOOL.code)(spans)
            and status_of(spans) == "error"
            and start_of(spans) < MIDDLE + 50 * MS
        ),
    ),
]


@pytest.fixture(scope="module")
def traces() -> dict[str, list[Row]]:
    """The spans of each trace by its id."""
    found: dict[str, list[Row]] = {}
    for span in made_spans(7):
        found.setdefault(f"{span['trace_hi']:016x}{span['trace_lo']:016x}", []).append(span)
    return found


@pytest.fixture(scope="module")
def filled(front_process: FrontProcess) -> Iterator[Store]:
    """A store in which every batch was an insert: two ranks, five spans a batch, out of order; and neighbours."""
    store = Store(front_process.url)
    migrate(store.client)
    for batch in cut_batches():
        arrives(store, batch)
    neighbour = {**made_spans(7)[0], "start": START - S}
    arrives(store, Writer("other", 0).seal(spans=[{**neighbour, "name": "other"}]))
    arrives(store, Writer("many", 0, project="secret").seal(spans=[{**neighbour, "name": "secret"}]))
    yield store
    store.drop()


@pytest_asyncio.fixture
async def api_of_many(filled: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    async with over(filled) as api:
        yield api


def cut_batches() -> list[pb.Batch]:
    """The spans as two ranks send them, shuffled."""
    spans = made_spans(7)
    batches: list[pb.Batch] = []
    for rank in range(2):
        writer = Writer("many", rank)
        mine = [span for span in spans if span["span_id"] % 2 == rank]
        batches += [writer.seal(spans=mine[begin : begin + 5]) for begin in range(0, len(mine), 5)]
    random.Random(3).shuffle(batches)
    return batches


def expected(traces: dict[str, list[Row]], test: Test) -> list[str]:
    """Ids of the traces that fit, the latest first."""
    fitting = {trace: spans for trace, spans in traces.items() if test(spans)}
    return sorted(fitting, key=lambda trace: (start_of(fitting[trace]), trace), reverse=True)


async def test_every_filter_finds_the_traces_that_a_loop_over_their_spans_does(
    api_of_many: httpx.AsyncClient, traces: dict[str, list[Row]]
) -> None:
    for query, test in FILTERS:
        found = await walked(api_of_many, RUN, limit=50, **query)

        assert [trace["trace_id"] for trace in found] == expected(traces, test), query


@pytest.mark.parametrize("limit", [2, 7, 2_000])
async def test_pages_of_any_size_have_every_trace_once_in_order(
    api_of_many: httpx.AsyncClient, traces: dict[str, list[Row]], limit: int
) -> None:
    found = await walked(api_of_many, RUN, limit=limit)
    of_project = await walked(api_of_many, PROJECT, limit=abs(9 - limit), **{"from": START})

    assert [trace["trace_id"] for trace in found] == expected(traces, anything)
    assert found == of_project


async def test_a_trace_is_summed_up_over_all_its_spans(
    api_of_many: httpx.AsyncClient, traces: dict[str, list[Row]]
) -> None:
    for shown in (await get(api_of_many, RUN))["items"]:
        spans = traces[shown["trace_id"]]
        kinds = {kind.value: sum(span["kind"] == kind.code for span in spans) for kind in SpanKind}

        assert shown["status"] == status_of(spans)
        assert (int(shown["start_ns"]), int(shown["duration_ns"])) == (start_of(spans), duration_of(spans))
        assert shown["kinds"] == {kind: count for kind, count in kinds.items() if count}
        assert (shown["spans"], shown["roots"], shown["input_tokens"]) == (len(spans), 1, 7 * len(spans))
        assert (shown["name"], shown["cost_usd"]) == (spans[0]["name"], None)


async def test_a_project_lists_all_its_runs_and_by_default_the_last_seven_days_of_all(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    now = time.time_ns()
    for run, age in (("new", 1), ("old", 8)):
        span: Row = {"trace_lo": 1, "span_id": 1, "name": run, "status": OK, "start": now - age * 86_400 * S}
        arrives(own, Writer(run, 0).seal(spans=[span]))

    recent = await get(api_of_own, PROJECT)
    everything = await get(api_of_own, PROJECT, **{"from": "2000-01-01"})
    elsewhere = await get(api_of_own, PROJECT, project="elsewhere")
    of_run = await get(api_of_own, "/api/v1/runs/old/traces")
    narrowed = await get(api_of_own, PROJECT, run="old")

    assert [trace["run_id"] for trace in recent["items"]] == ["new"]
    assert [trace["run_id"] for trace in everything["items"]] == ["new", "old"]
    assert (elsewhere["items"], elsewhere["total"]) == ([], 0)
    assert (of_run["total"], of_run["from"]) == (narrowed["total"], narrowed["from"]) == (1, None)
    assert 0 <= now - 7 * 86_400 * S - int(recent["from_ns"]) <= 60 * S


async def test_pages_that_are_far_denser_or_thinner_than_the_last_one_lack_nothing(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    starts = [START + n * gap for gap in (1, S, 3_600 * S, 1_000) for n in range(1, 40)]
    spans: list[Row] = [{"trace_lo": n + 1, "span_id": n + 1, "start": start} for n, start in enumerate(starts)]
    arrives(own, Writer("uneven", 0).seal(spans=spans[:100]))
    first = await walked(api_of_own, "/api/v1/runs/uneven/traces", limit=3)
    arrives(own, Writer("uneven", 1).seal(spans=spans[100:]))

    again = [await walked(api_of_own, "/api/v1/runs/uneven/traces", limit=limit) for limit in (3, 50, 7)]

    assert [int(trace["start_ns"]) for trace in first] == sorted(starts[:100], reverse=True)
    for traces in again:
        assert [int(trace["start_ns"]) for trace in traces] == sorted(starts, reverse=True)


async def test_a_total_is_right_again_when_something_arrives_or_is_deleted(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    writer = Writer("many", 0)
    for number in range(3):
        arrives(own, writer.seal(spans=[{"trace_lo": number + 1, "span_id": 1, "status": OK, "start": START + number}]))

        for _ in range(2):
            assert (await get(api_of_own, RUN, limit=1))["total"] == number + 1

    await api_of_own.delete("/api/v1/runs/many", params={"force": "true"})
    arrives(own, Writer("many", 1).seal(spans=[{"trace_lo": 9, "span_id": 1, "status": OK, "start": START}]))
    assert (await get(api_of_own, RUN))["total"] == 1


async def test_a_span_that_is_stored_twice_counts_once(own: Store, api_of_own: httpx.AsyncClient) -> None:
    span: Row = {"trace_lo": 1, "span_id": 1, "name": "twice", "status": OK, "start": START, "kind": 4}
    arrives(own, Writer("many", 0).seal(spans=[span]))
    arrives(own, Writer("many", 0, launch=b"M" * 16).seal(spans=[{**span, "status": INTERRUPTED}]))

    [trace] = (await get(api_of_own, RUN))["items"]

    assert (trace["spans"], trace["kinds"], trace["status"]) == (1, {"tool": 1}, "ok")


async def test_tokens_costs_and_rewards_are_read_from_metrics_and_attributes(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    shared: Row = {"trace_lo": 1, "status": OK, "duration": MS}
    tokens = {"gen_ai.usage.input_tokens": 10.0, "gen_ai.usage.output_tokens": 3.0}
    spans: list[Row] = [
        {**shared, "span_id": 1, "start": START, "metrics": {**tokens, "reward.total": 0.5, "loss": 1.0}},
        {**shared, "span_id": 2, "start": START + 2, "numbers": tokens, "metrics": {"cost_usd": 0.25}},
        {**shared, "span_id": 3, "start": START + 3, "metrics": {"reward.total": 0.75, "cost_usd": float("nan")}},
    ]
    arrives(own, Writer("many", 0).seal(spans=spans))

    [trace] = (await get(api_of_own, RUN))["items"]

    assert (trace["input_tokens"], trace["output_tokens"], trace["cost_usd"]) == (20, 6, 0.25)
    assert trace["rewards"] == {"reward.total": 0.75}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"q": "a b c d e f g h i"}, "at most 8 words"),
        ({"attribute": "novalue"}, "key=value"),
        ({"kind": "broken"}, "broken"),
        ({"from": "yesterday"}, "yesterday"),
        ({"from": "2026-11-29T00:00:00Z", "to": "2026-11-28T00:00:00Z"}, "after"),
        ({"min_step": 3, "max_step": 2}, "more than"),
        ({"step": 3, "max_step": 4}, "leave min_step"),
        ({"min_duration_ms": -1}, "min_duration_ms"),
        ({"since": "2026-11-29"}, "since"),
    ],
)
async def test_a_filter_that_cannot_be_meant_is_refused(
    api_of_many: httpx.AsyncClient, query: dict[str, Any], words: str
) -> None:
    error = await refused(api_of_many, PROJECT, status=422, **query)

    assert words in error["message"] + error["hint"]


def test_a_text_of_an_attribute_is_looked_up_in_its_index(filled: Store) -> None:
    sets = TraceSets(TraceScope("default", "many"), TraceFilter(attributes=(("model", "none"),)), open_now={})
    set_of_traces = sets.conditions.partition(" IN (")[2].removesuffix(")")

    found = filled.client.query(f"EXPLAIN indexes = 1 {set_of_traces}", parameters=dict(sets.values))

    plan = "".join(line for (line,) in found.result_rows)
    assert "attribute_words" in plan
    assert "Granules: 0/" in plan


async def test_an_unknown_status_is_refused_with_the_known_ones(api_of_many: httpx.AsyncClient) -> None:
    answer = await api_of_many.get(RUN, params={"status": "broken"})

    assert error_in(answer, status=422)["expected"] == ["ok", "error", "interrupted", "cancelled", "running", "all"]


async def test_the_cursor_of_one_list_is_none_of_another(api_of_many: httpx.AsyncClient) -> None:
    first = await get(api_of_many, RUN, limit=1)

    error = await refused(api_of_many, RUN, status=422, after=first["next"], kind="tool")

    assert error["code"] == "invalid_cursor"
