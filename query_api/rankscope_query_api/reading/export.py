"""Every finished span of a run or of a trace, page by page in the order of the sorting key, so that none is kept.

A page begins behind the last row of the one before. The key's columns are compared one by one: a comparison of tuples
leaves the primary key unused, and every page would read the run from its beginning.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_proto.names import EventKind
from rankscope_query_api.answers import Key
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.places import StepWindow, TracePlace
from rankscope_query_api.reading.trace_detail import ROW, event_window
from rankscope_query_api.summaries import FIRST_COPY
from rankscope_query_api.values import Record, RunKey, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"
_STEP = "toInt64(ifNull(step, -1))"

_BEHIND = f"""{_STEP} >= {{after_step:Int64}} AND (
        {_STEP} > {{after_step:Int64}}
        OR rank > {{after_rank:Int32}}
        OR (rank = {{after_rank:Int32}} AND start > {{after_start:Int64}})
        OR (
            rank = {{after_rank:Int32}} AND start = {{after_start:Int64}}
            AND (trace_hi, trace_lo, span_id) > ({{after_hi:UInt64}}, {{after_lo:UInt64}}, {{after_span:UInt64}})
        )
    )"""

_ORDER = f"""
ORDER BY ifNull(step, -1), rank, start, trace_hi, trace_lo, span_id, {FIRST_COPY}
LIMIT {{limit:UInt32}}"""

OF_RUN = f"""
SELECT {ROW}
FROM spans
WHERE {_OF_RUN} AND {_STEP} BETWEEN {{first:Int64}} AND {{last:Int64}} AND {_BEHIND}{_ORDER}"""

OF_TRACE = f"""
SELECT {ROW}
FROM spans
WHERE {_OF_RUN} AND {_STEP} IN {{steps:Array(Int64)}} AND start BETWEEN {{since:Int64}} AND {{until:Int64}}
    AND trace_hi = {{hi:UInt64}} AND trace_lo = {{lo:UInt64}} AND {_BEHIND}{_ORDER}"""

EVENTS = f"""
SELECT DISTINCT trace_hi, trace_lo, span_id, time, name, severity, payload, incarnation, seq, idx
FROM events
WHERE {_OF_RUN} AND kind = '{EventKind.SPAN_EVENT.value}' AND time BETWEEN {{since:Int64}} AND {{until:Int64}}
    AND (trace_hi, trace_lo, span_id) IN (
        SELECT one.1, one.2, one.3
        FROM (SELECT arrayJoin(arrayZip({{his:Array(UInt64)}}, {{los:Array(UInt64)}}, {{ids:Array(UInt64)}})) AS one)
    )
ORDER BY trace_hi, trace_lo, span_id, time, incarnation, seq, idx"""

STATEMENTS = (OF_RUN, OF_TRACE, EVENTS)
"""Every statement of this module, for the test that reads them."""

_BEGINNING: Key = (-(2**63), -(2**31), -(2**63), 0, 0, 0)


class ClickHouseExport:
    """`SpanExporter` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def spans(
        self, key: RunKey, of: StepWindow | TracePlace, *, limit: int, after: Record | None
    ) -> Sequence[Record]:
        """See `SpanExporter`."""
        step, rank, start, hi, lo, span = _BEGINNING if after is None else _key(after)
        values: dict[str, Value] = {"project": key.project, "run": key.run, "limit": limit}
        values |= {"after_step": step, "after_rank": rank, "after_start": start}
        values |= {"after_hi": hi, "after_lo": lo, "after_span": span}
        if isinstance(of, StepWindow):
            of_run: dict[str, Value] = {"first": of.first, "last": of.last}
            return (await self._clickhouse.select(OF_RUN, values | of_run)).records()
        of_trace: dict[str, Value] = {"hi": of.hi, "lo": of.lo, "steps": list(of.steps)}
        of_trace |= {"since": of.first_start_ns, "until": of.last_end_ns}
        return (await self._clickhouse.select(OF_TRACE, values | of_trace)).records()

    async def events(self, key: RunKey, spans: Sequence[Record]) -> Sequence[Record]:
        """See `SpanExporter`."""
        values: dict[str, Value] = {
            "project": key.project,
            "run": key.run,
            **event_window(
                min(span["start"] for span in spans), max(span["start"] + max(span["duration"], 0) for span in spans)
            ),
            "his": [span["trace_hi"] for span in spans],
            "los": [span["trace_lo"] for span in spans],
            "ids": [span["span_id"] for span in spans],
        }
        return (await self._clickhouse.select(EVENTS, values)).records()


def _key(span: Record) -> Key:
    step = -1 if span["step"] is None else span["step"]
    return step, span["rank"], span["start"], span["trace_hi"], span["trace_lo"], span["span_id"]
