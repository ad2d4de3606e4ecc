"""What is open now, in a run or a whole project: the last heartbeats of living processes, less what ended since.

A heartbeat comes every 5 s while a span is open and finished spans come every second, so what a heartbeat shows may be
stored as finished already.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Mapping, Sequence

from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.living import STACK_AGE_NS, RunningSpan
from rankscope_query_api.values import SILENT_NS, Record, TraceScope, Value

MOST_OPEN = 5_000
"""Open spans that are read, the latest: 1,000 ranks with five each."""

LOOKED_BACK_NS = 10 * SILENT_NS
"""A heartbeat carries its process' own clock, which may be off; whether it lives is told by when it was heard."""

OpenTrace = tuple[str, int, int]
"""Run and halves of the id of a trace that something is open of."""


def scoped(run: str | None) -> str:
    """The condition of every table reference: one project and, unless all are meant, one run."""
    return "project = {project:String}" + (" AND run_id = {run:String}" if run is not None else "")


def scope_values(scope: TraceScope) -> dict[str, Value]:
    """The values of `scoped`."""
    values: dict[str, Value] = {"project": scope.project}
    if scope.run is not None:
        values["run"] = scope.run
    return values


def _recent(run: str | None) -> str:
    return f"{scoped(run)} AND heartbeat >= toUnixTimestamp64Nano(now64(9)) - {LOOKED_BACK_NS}"


def recent(run: str | None) -> str:
    """How many heartbeats there were lately: mostly none, which is said in a fifth of the time."""
    return f"SELECT count() AS rows FROM open_spans WHERE {_recent(run)}"


def heartbeats(run: str | None) -> str:
    """The open spans of each process' last heartbeat, the latest first.

    An array's element beyond its end is 0, so rows from before trace ids travelled have none and are left out.
    """
    return f"""
SELECT
    run_id,
    lower(hex(launch_id)) AS launch,
    lower(hex(incarnation)) AS incarnation_hex,
    seq,
    heartbeat,
    stack_trace_hi[place] AS trace_hi,
    stack_trace_lo[place] AS trace_lo,
    stack_span_id[place] AS span_id,
    if(place > 1 AND stack_trace_hi[place - 1] = trace_hi AND stack_trace_lo[place - 1] = trace_lo,
       stack_span_id[place - 1], 0) AS parent_span_id,
    stack_name[place] AS name,
    stack_kind[place] AS kind,
    stack_start[place] AS start,
    rank,
    step,
    thread
FROM open_spans
ARRAY JOIN arrayEnumerate(stack_span_id) AS place
WHERE {_recent(run)} AND (trace_hi, trace_lo) != (0, 0)
    AND (run_id, incarnation, heartbeat) IN (
        SELECT run_id, incarnation, max(heartbeat) FROM open_spans WHERE {_recent(run)} GROUP BY run_id, incarnation
    )
ORDER BY start DESC, trace_hi, trace_lo, span_id, run_id
LIMIT {MOST_OPEN}"""


# The ledger's key is (run, incarnation, seq): only its end is read of each process.
HEARD = """
SELECT
    run_id,
    lower(hex(incarnation)) AS incarnation_hex,
    max(sealed) AS sealed_ns,
    toUnixTimestamp64Nano(now64(9)) - max(if(received > 0, received, sealed)) AS silent_ns
FROM batches
WHERE project = {project:String} AND run_id IN {runs:Array(String)}
    AND incarnation IN (SELECT unhex(arrayJoin({incarnations:Array(String)})))
    AND seq >= {seq:UInt64}
GROUP BY run_id, incarnation"""

STEPS = """
SELECT arraySort(groupUniqArrayArray(trace_index.steps)) AS steps
FROM trace_index
WHERE project = {project:String} AND run_id IN {runs:Array(String)}
    AND trace_hi IN {his:Array(UInt64)} AND trace_lo IN {los:Array(UInt64)}"""

ENDED = """
SELECT DISTINCT run_id, trace_hi, trace_lo, span_id
FROM spans
WHERE project = {project:String} AND run_id IN {runs:Array(String)}
    AND toInt64(ifNull(step, -1)) IN {steps:Array(Int64)}
    AND span_id IN {ids:Array(UInt64)}"""

OF_PROJECT = (recent(None), heartbeats(None))
"""Statements that read all runs of a project."""

STATEMENTS = (recent("run"), heartbeats("run"), *OF_PROJECT, HEARD, STEPS, ENDED)
"""Every statement of this module, for the test that reads them."""


class OpenNow:
    """What is open now.

    Args:
        clickhouse: The door.
    """

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def of(self, scope: TraceScope) -> Mapping[OpenTrace, Sequence[RunningSpan]]:
        """The spans that living processes have open and that are not stored, by trace; at most `MOST_OPEN`."""
        values = scope_values(scope)
        if not (await self._clickhouse.select(recent(scope.run), values)).columns[0][0]:
            return {}
        found = (await self._clickhouse.select(heartbeats(scope.run), values)).records()
        found = await self._of_living(scope, found) if found else []
        ended = await self._ended(scope, found) if found else frozenset[tuple[OpenTrace, int]]()
        traces: dict[OpenTrace, dict[int, RunningSpan]] = {}
        for record in found:
            if (_trace(record), record["span_id"]) not in ended:
                traces.setdefault(_trace(record), {})[record["span_id"]] = _running(record)
        return {trace: list(spans.values()) for trace, spans in traces.items()}

    async def _of_living(self, scope: TraceScope, found: Sequence[Record]) -> list[Record]:
        asked: dict[str, Value] = {
            **_runs(scope, found),
            "incarnations": sorted({record["incarnation_hex"] for record in found}),
            "seq": min(record["seq"] for record in found),
        }
        living = {
            (heard["run_id"], heard["incarnation_hex"]): heard["sealed_ns"]
            for heard in (await self._clickhouse.select(HEARD, asked)).records()
            if heard["silent_ns"] <= SILENT_NS
        }
        return [
            record
            for record in found
            if (sealed := living.get((record["run_id"], record["incarnation_hex"]))) is not None
            and sealed - record["heartbeat"] <= STACK_AGE_NS
        ]

    async def _ended(self, scope: TraceScope, found: Sequence[Record]) -> frozenset[tuple[OpenTrace, int]]:
        """Which of these are stored as finished: the index names the steps to look in."""
        traces = sorted({_trace(record) for record in found})
        ids: dict[str, Value] = {"his": [hi for _, hi, _ in traces], "los": [lo for _, _, lo in traces]}
        runs = _runs(scope, found)
        steps = (await self._clickhouse.select(STEPS, {**runs, **ids})).columns[0][0]
        asked: dict[str, Value] = {**runs, "steps": [-1, *steps], "ids": [record["span_id"] for record in found]}
        stored = (await self._clickhouse.select(ENDED, asked)).records()
        return frozenset((_trace(record), record["span_id"]) for record in stored)


def _runs(scope: TraceScope, found: Sequence[Record]) -> dict[str, Value]:
    return {"project": scope.project, "runs": sorted({record["run_id"] for record in found})}


def _trace(record: Record) -> OpenTrace:
    return record["run_id"], record["trace_hi"], record["trace_lo"]


def _running(record: Record) -> RunningSpan:
    return RunningSpan(
        trace=(record["trace_hi"], record["trace_lo"]),
        span_id=record["span_id"],
        parent_span_id=record["parent_span_id"],
        name=record["name"],
        kind=record["kind"],
        start_ns=record["start"],
        heartbeat_ns=record["heartbeat"],
        rank=record["rank"],
        step=record["step"],
        thread=record["thread"],
        launch=record["launch"],
    )
