"""Traces by step: what those come to that begin at a step, and what a metric was at it.

A trace is counted at its least step, once, however many steps its spans are of. The index has the steps of a trace,
so a page reads the spans of its own and of later steps only.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from rankscope_proto.names import SPAN_FLAGS, SpanStatus
from rankscope_proto.sections_spans import SPAN_END
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.living import RunningSpan
from rankscope_query_api.places import StepBucket, StepWindow, TraceCount
from rankscope_query_api.reading.open_now import OpenNow, OpenTrace
from rankscope_query_api.summaries import COST_USD, FIRST_COPY, INPUT_TOKENS, OUTPUT_TOKENS, number_of
from rankscope_query_api.values import Record, RunKey, Slice, TraceScope, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"
_STEP = "toInt64(ifNull(step, -1))"


def _anchors(more: str = "") -> str:
    """Traces of a run with their least step, those that have one; `more` is a further condition (` AND …`)."""
    return f"""
        SELECT trace_hi, trace_lo, arrayMin(groupUniqArrayArray(trace_index.steps)) AS anchor
        FROM trace_index
        WHERE {_OF_RUN}{more}
        GROUP BY trace_hi, trace_lo
        HAVING notEmpty(groupUniqArrayArray(trace_index.steps))"""


_ANCHORS = _anchors()

_STEPS = f"""
    SELECT anchor AS at FROM ({_ANCHORS})
    UNION DISTINCT
    SELECT assumeNotNull(step) AS at
    FROM scalars
    WHERE {_OF_RUN} AND name = {{metric:String}} AND step IS NOT NULL
    UNION DISTINCT
    SELECT arrayJoin({{open_steps:Array(Int64)}}) AS at"""

STEP_COUNT = f"SELECT count() AS total FROM ({_STEPS}) WHERE at BETWEEN {{first:Int64}} AND {{last:Int64}}"

PAGE = f"""
SELECT at FROM ({_STEPS})
WHERE at BETWEEN {{first:Int64}} AND {{last:Int64}} AND at > {{after:Int64}}
ORDER BY at
LIMIT {{limit:UInt32}}"""

OPEN_ANCHORS = _anchors(
    """ AND (trace_hi, trace_lo) IN (
            SELECT pair.1, pair.2
            FROM (SELECT arrayJoin(arrayZip({his:Array(UInt64)}, {los:Array(UInt64)})) AS pair)
        )"""
)

BUCKETS = f"""
SELECT
    anchor AS at,
    count() AS traces,
    countIf(is_step) AS step_traces,
    countIf(failed > 0) AS error_traces,
    sum(stored) AS spans,
    sum(failed) AS errors,
    toInt64(avg(lasted)) AS mean_ns,
    max(lasted) AS max_ns,
    sum(input) AS input_tokens,
    sum(output) AS output_tokens,
    sum(cost) AS cost_usd,
    min(began) AS first_started_ns,
    max(began) AS last_started_ns
FROM (
    SELECT
        min(step) AS anchor,
        count() AS stored,
        countIf(status = {SpanStatus.ERROR.code}) AS failed,
        min(start) AS began,
        max({SPAN_END}) - began AS lasted,
        max(bitAnd(flags, {SPAN_FLAGS["in_step_trace"]}) != 0) AS is_step,
        sum({number_of(INPUT_TOKENS)}) AS input,
        sum({number_of(OUTPUT_TOKENS)}) AS output,
        sum({number_of(COST_USD)}) AS cost
    FROM (
        SELECT trace_hi, trace_lo, span_id, step, status, start, duration, flags, metrics, numbers
        FROM spans
        WHERE {_OF_RUN} AND ({_STEP} = -1 OR {_STEP} >= {{first:Int64}}) AND (trace_hi, trace_lo) IN (
            SELECT trace_hi, trace_lo FROM ({_ANCHORS}) WHERE anchor BETWEEN {{first:Int64}} AND {{last:Int64}}
        )
        ORDER BY {FIRST_COPY}
        LIMIT 1 BY trace_hi, trace_lo, span_id
    )
    GROUP BY trace_hi, trace_lo
)
GROUP BY at"""

POINTS = f"""
SELECT
    assumeNotNull(step) AS at,
    count() AS points,
    avg(value) AS mean,
    min(value) AS least,
    max(value) AS greatest
FROM scalars
WHERE {_OF_RUN} AND name = {{metric:String}} AND step BETWEEN {{first:Int64}} AND {{last:Int64}}
GROUP BY at"""

TRACES = f"""
SELECT count() AS total, countIf(empty(of_steps)) AS stepless
FROM (
    SELECT groupUniqArrayArray(trace_index.steps) AS of_steps
    FROM trace_index
    WHERE {_OF_RUN}
    GROUP BY trace_hi, trace_lo
)"""

FAILED = f"""
SELECT uniqExact(trace_hi, trace_lo) AS failed FROM spans WHERE {_OF_RUN} AND status = {SpanStatus.ERROR.code}"""

STATEMENTS = (STEP_COUNT, PAGE, OPEN_ANCHORS, BUCKETS, POINTS, TRACES, FAILED)
"""Every statement of this module, for the test that reads them."""


class ClickHouseTraceSteps:
    """`TraceStepReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def buckets(
        self, key: RunKey, window: StepWindow, *, metric: str, limit: int, after: int | None
    ) -> Slice[StepBucket]:
        """See `TraceStepReader`."""
        running = await self._running(key)
        asked: dict[str, Value] = {**_of(key), "metric": metric, "first": window.first, "last": window.last}
        asked |= {"open_steps": list(running), "after": window.first - 1 if after is None else after}
        count, page = await asyncio.gather(
            self._clickhouse.select(STEP_COUNT, asked),
            self._clickhouse.select(PAGE, {**asked, "limit": limit + 1}),
        )
        steps: list[int] = [*page.columns[0]] if page.columns else []
        shown = steps[:limit]
        found = await self._filled(key, shown, metric=metric, running=running) if shown else []
        return Slice(found, count.columns[0][0], (shown[-1],) if len(steps) > limit else None)

    async def count(self, key: RunKey) -> TraceCount:
        """See `TraceStepReader`."""
        traces, failed = await asyncio.gather(
            self._clickhouse.select(TRACES, _of(key)), self._clickhouse.select(FAILED, _of(key))
        )
        return TraceCount(**traces.records()[0], **failed.records()[0])

    async def _filled(
        self, key: RunKey, steps: Sequence[int], *, metric: str, running: Mapping[int, int]
    ) -> list[StepBucket]:
        asked: dict[str, Value] = {**_of(key), "metric": metric, "first": steps[0], "last": steps[-1]}
        traces, points = await asyncio.gather(
            self._clickhouse.select(BUCKETS, asked), self._clickhouse.select(POINTS, asked)
        )
        of_traces: dict[int, Record] = {record.pop("at"): record for record in traces.records()}
        of_metric: dict[int, Record] = {record.pop("at"): record for record in points.records()}
        return [StepBucket(at, of_traces.get(at), of_metric.get(at), running.get(at, 0)) for at in steps]

    async def _running(self, key: RunKey) -> Mapping[int, int]:
        """How many traces run that begin at each step."""
        open_now = await OpenNow(self._clickhouse).of(TraceScope(key.project, key.run))
        if not open_now:
            return {}
        asked: dict[str, Value] = {"his": [hi for _, hi, _ in open_now], "los": [lo for _, _, lo in open_now]}
        table = await self._clickhouse.select(OPEN_ANCHORS, {**_of(key), **asked})
        stored = {(hi, lo): anchor for hi, lo, anchor in zip(*table.columns, strict=True)}
        steps = (_anchor(trace, spans, stored=stored) for trace, spans in open_now.items())
        return Counter(step for step in steps if step is not None)


def _anchor(trace: OpenTrace, spans: Sequence[RunningSpan], *, stored: Mapping[tuple[int, int], int]) -> int | None:
    """The step a trace begins at: that of its stored spans, else of the open ones; None: it has none."""
    _, hi, lo = trace
    return stored.get((hi, lo), min((span.step for span in spans if span.step is not None), default=None))


def _of(key: RunKey) -> dict[str, Value]:
    return {"project": key.project, "run": key.run}
