"""Traces as rows of a list: which there are, and what their spans come to."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_query_api.answers import Key
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.summaries import SPAN_COLUMNS, SUMMARY
from rankscope_query_api.values import Record, RunKey, Slice, SpanFilter, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"

_CONDITIONS = {
    "kind": "kind = {kind:UInt8}",
    "status": "status = {status:UInt8}",
    "step": "toInt64(ifNull(step, -1)) = {step:Int64}",
    "rank": "rank = {rank:Int32}",
}

_TEXTS = "name, path, error_type, thread_id, rollout_id, inputs, outputs, error_preview"
_SEARCHED = f"arrayConcat([{_TEXTS}], mapValues(attributes))"

TRACES = f"""
SELECT
    trace_hi,
    trace_lo,
    min(first_start) AS started_ns,
    max(last_end) - started_ns AS duration_ns,
    arraySort(groupUniqArrayArray(trace_index.steps)) AS steps,
    arraySort(groupUniqArrayArray(trace_index.ranks)) AS ranks
FROM trace_index
WHERE {_OF_RUN} /*where*/
GROUP BY trace_hi, trace_lo"""

_TRACE_ORDER = """
HAVING (started_ns, trace_hi, trace_lo) < ({started:Int64}, {hi:UInt64}, {lo:UInt64})
ORDER BY started_ns DESC, trace_hi DESC, trace_lo DESC
LIMIT {limit:UInt32}"""

_TRACE_IS_IN = f"AND (trace_hi, trace_lo) IN (SELECT trace_hi, trace_lo FROM spans WHERE {_OF_RUN} AND /*conditions*/)"

SUMMARIES = f"""
SELECT trace_hi, trace_lo, {SUMMARY}
FROM (
    SELECT trace_hi, trace_lo, {SPAN_COLUMNS}
    FROM spans
    WHERE {_OF_RUN} AND toInt64(ifNull(step, -1)) IN {{steps:Array(Int64)}}
        AND (trace_hi, trace_lo) IN (
            SELECT pair.1, pair.2
            FROM (SELECT arrayJoin(arrayZip({{his:Array(UInt64)}}, {{los:Array(UInt64)}})) AS pair)
        )
    ORDER BY trace_hi, trace_lo, span_id, incarnation, seq, idx
    LIMIT 1 BY trace_hi, trace_lo, span_id
)
GROUP BY trace_hi, trace_lo"""


def traces_statement(where: SpanFilter) -> tuple[str, dict[str, Value]]:
    """TRACES for a filter: the statement without its order, and the values of the filter's placeholders."""
    values: dict[str, Value] = {
        name: value
        for name, value in (("kind", where.kind), ("status", where.status), ("step", where.step), ("rank", where.rank))
        if value is not None
    }
    conditions = [_CONDITIONS[name] for name in values]
    for number, term in enumerate(where.terms):
        values[f"term{number}"] = term
        conditions.append(
            f"arrayExists(text -> positionCaseInsensitiveUTF8(text, {{term{number}:String}}) > 0, {_SEARCHED})"
        )
    inside = _TRACE_IS_IN.replace("/*conditions*/", " AND ".join(conditions)) if conditions else ""
    return TRACES.replace("/*where*/", inside), values


STATEMENTS = (TRACES + _TRACE_ORDER, SUMMARIES, traces_statement(SpanFilter(1, 1, 1, 1, ("a", "b")))[0])
"""Every statement of this module, for the test that reads them."""


class ClickHouseTraces:
    """`TraceReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def traces(self, key: RunKey, where: SpanFilter, *, limit: int, after: Key | None) -> Slice[Record]:
        """See `TraceReader`."""
        statement, values = traces_statement(where)
        of_run: dict[str, Value] = {**_of(key), **values}
        started, hi, lo = after or (2**63 - 1, 0, 0)
        count = await self._clickhouse.select(f"SELECT count() AS total FROM ({statement})", of_run)
        page = await self._clickhouse.select(
            statement + _TRACE_ORDER, {**of_run, "started": started, "hi": hi, "lo": lo, "limit": limit + 1}
        )
        found = page.records()
        items = await self._detailed(key, found[:limit])
        last = _trace_key(found[limit - 1]) if len(found) > limit else None
        return Slice(items, count.columns[0][0], last)

    async def _detailed(self, key: RunKey, traces: Sequence[Record]) -> Sequence[Record]:
        """See `TraceReader`."""
        if not traces:
            return ()
        steps = sorted({step for trace in traces for step in trace["steps"]} | {-1})
        ids = {"his": [trace["trace_hi"] for trace in traces], "los": [trace["trace_lo"] for trace in traces]}
        table = await self._clickhouse.select(SUMMARIES, {**_of(key), "steps": steps, **ids})
        details = {(record.pop("trace_hi"), record.pop("trace_lo")): record for record in table.records()}
        return [trace | details[ids] for trace in traces if (ids := (trace["trace_hi"], trace["trace_lo"])) in details]


def _of(key: RunKey) -> dict[str, Value]:
    return {"project": key.project, "run": key.run}


def _trace_key(record: Record) -> Key:
    return record["started_ns"], record["trace_hi"], record["trace_lo"]
