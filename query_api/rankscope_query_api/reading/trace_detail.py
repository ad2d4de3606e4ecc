"""One trace: where it lies, what it comes to, and any page of its tree without the rest of it.

A page of siblings costs a few narrow scans of the trace, never the tree: a trace of 100,000 spans is 12 granules, and
reading the three columns of its edges takes 15 ms where building the tree of them takes 150. What keeps a tree from
being one is looked for by scans too: a parent that is not stored by its absence, a cycle by the edge that it must
have, a child that begins before its parent (`has_back_edges`, `Family.has_back_edge`). Only where
there is such an edge, which skewed clocks make as well, the edges between inner spans are read (`inner_edges`).

Of rows that repeat a span the first one in `FIRST_COPY` is meant, everywhere.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_proto.columns import SPANS as SPAN_SECTION
from rankscope_proto.names import EventKind
from rankscope_query_api.answers import Key
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.living import RunningSpan
from rankscope_query_api.places import Families, Family, RootCount, SpanPlace, TracePlace
from rankscope_query_api.reading.open_now import OpenNow
from rankscope_query_api.summaries import FIRST_COPY, SPAN_COLUMNS, SUMMARY
from rankscope_query_api.trace_store import EVENTS_A_SPAN
from rankscope_query_api.values import Record, RunKey, Table, TraceScope, Value

EVENT_SLACK_NS = 3_600 * 10**9
"""How far from a span its events are looked for: they are told while it is open, by the same clock, but a client of
the HTTP ingest may take them from another one."""

MOST_INNER_EDGES = 400_000
"""Edges that are looked through for cycles; a store answers half a million rows at most by default."""

_OF_RUN = "project = {project:String} AND run_id = {run:String}"

PLACE = f"""
SELECT
    groupUniqArrayArray(steps) AS in_steps,
    min(first_start) AS first_start_ns,
    max(last_end) AS last_end_ns,
    count() AS parts
FROM trace_index
WHERE {_OF_RUN} AND trace_hi = {{hi:UInt64}} AND trace_lo = {{lo:UInt64}}"""

# Without the end, spans that have no step would be read up to the end of the run.
OF_TRACE = f"""{_OF_RUN} AND toInt64(ifNull(step, -1)) IN {{steps:Array(Int64)}}
    AND start >= {{first:Int64}} AND start <= {{end:Int64}}
    AND trace_hi = {{hi:UInt64}} AND trace_lo = {{lo:UInt64}}"""

IS_ORPHAN = f"""parent_span_id != 0 AND parent_span_id NOT IN {{open:Array(UInt64)}}
        AND parent_span_id NOT IN (SELECT span_id FROM spans WHERE {OF_TRACE})"""

TOTALS = f"SELECT {SUMMARY}, uniqExact(span_id) AS distinct FROM spans WHERE {OF_TRACE}"

TOTALS_OF_FIRST_COPIES = f"""
SELECT {SUMMARY}, count() AS distinct
FROM (SELECT {SPAN_COLUMNS} FROM spans WHERE {OF_TRACE} ORDER BY span_id, {FIRST_COPY} LIMIT 1 BY span_id)"""

# The right side is one row a parent: of 100,000 spans rarely more than a few hundred.
BACK_EDGES = f"""
SELECT count() AS found
FROM spans
INNER JOIN (
    SELECT parent_span_id AS of_parent, min(start) AS first_child FROM spans WHERE {OF_TRACE} GROUP BY parent_span_id
) AS families ON span_id = of_parent
WHERE {OF_TRACE} AND first_child <= start"""

ROOT_COUNT = f"""
SELECT uniqExact(span_id) AS total, uniqExactIf(span_id, parent_span_id != 0) AS orphans
FROM spans
WHERE {OF_TRACE} AND (parent_span_id = 0 OR {IS_ORPHAN})"""

_PAGE = """AND (start, span_id) > ({start:Int64}, {span:UInt64})
ORDER BY start, span_id
LIMIT {limit:UInt32}"""

# DISTINCT for speed, not for copies: ordered and cut without it, the condition is looked at in twice the time.
ROOTS = f"""
SELECT DISTINCT start, span_id, parent_span_id
FROM spans
WHERE {OF_TRACE} AND (parent_span_id = 0 OR {IS_ORPHAN}) {_PAGE}"""

CHILDREN = f"""
SELECT start, span_id, parent_span_id
FROM spans
WHERE {OF_TRACE} AND parent_span_id = {{parent:UInt64}} {_PAGE}"""

# The children of some spans, and in the same scan one of these itself: a row that only has it is of no family.
FAMILIES = f"""
SELECT
    parent_span_id,
    uniqExact(span_id) AS children,
    min(start) AS first_child,
    countIf(span_id = {{itself:UInt64}}) AS rows,
    minIf(start, span_id = {{itself:UInt64}}) AS began
FROM spans
WHERE {OF_TRACE} AND (parent_span_id IN {{ids:Array(UInt64)}} OR span_id = {{itself:UInt64}})
GROUP BY parent_span_id"""

INNER_EDGES = f"""
SELECT span_id, parent_span_id, start
FROM spans
WHERE {OF_TRACE} AND span_id IN (SELECT parent_span_id FROM spans WHERE {OF_TRACE})
ORDER BY start, span_id, parent_span_id
LIMIT {MOST_INNER_EDGES + 1}"""

_NOT_SHOWN = {"microbatch", "depth"}
_SHOWN = (
    *(field.name for field in SPAN_SECTION.fields if field.table and field.name not in _NOT_SHOWN),
    *(column.name for column in SPAN_SECTION.maps),
)
ROW = f"""rank, {", ".join(_SHOWN)}, lower(hex(launch_id)) AS launch"""

SPANS = f"""
SELECT {ROW}
FROM spans
WHERE {OF_TRACE} AND start <= {{last:Int64}} AND span_id IN {{ids:Array(UInt64)}}
ORDER BY span_id, {FIRST_COPY}
LIMIT 1 BY span_id"""

EVENTS = f"""
SELECT DISTINCT span_id, time, name, severity, payload, incarnation, seq, idx
FROM events
WHERE {_OF_RUN} AND kind = '{EventKind.SPAN_EVENT.value}' AND time BETWEEN {{since:Int64}} AND {{until:Int64}}
    AND trace_hi = {{hi:UInt64}} AND trace_lo = {{lo:UInt64}} AND span_id IN {{ids:Array(UInt64)}}
ORDER BY span_id, time, incarnation, seq, idx
LIMIT {EVENTS_A_SPAN + 1} BY span_id"""

STATEMENTS = (
    *(PLACE, TOTALS, TOTALS_OF_FIRST_COPIES, BACK_EDGES, ROOT_COUNT, ROOTS, CHILDREN),
    *(FAMILIES, INNER_EDGES, SPANS, EVENTS),
)
"""Every statement of this module, for the test that reads them."""


class ClickHouseTraceDetail:
    """`TraceDetailReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def place(self, key: RunKey, trace: tuple[int, int]) -> TracePlace:
        """See `TraceDetailReader`."""
        hi, lo = trace
        table = await self._clickhouse.select(PLACE, {"project": key.project, "run": key.run, "hi": hi, "lo": lo})
        (found,) = table.records()
        return TracePlace(
            hi=hi,
            lo=lo,
            steps=sorted({*found["in_steps"], -1}),
            first_start_ns=found["first_start_ns"],
            last_end_ns=found["last_end_ns"],
            is_stored=bool(found["parts"]),
        )

    async def running(self, key: RunKey, trace: tuple[int, int]) -> Sequence[RunningSpan]:
        """See `TraceDetailReader`."""
        open_now = await OpenNow(self._clickhouse).of(TraceScope(key.project, key.run))
        return open_now.get((key.run, *trace), ())

    async def totals(self, key: RunKey, place: TracePlace) -> Record:
        """See `TraceDetailReader`."""
        found = await self._one(TOTALS, (key, place))
        if found["distinct"] != found["spans"]:
            rows = found["spans"]
            found = await self._one(TOTALS_OF_FIRST_COPIES, (key, place))
            return {**found, "copies": rows - found["spans"]}
        return {**found, "copies": 0}

    async def has_back_edges(self, key: RunKey, place: TracePlace) -> bool:
        """See `TraceDetailReader`."""
        return bool((await self._one(BACK_EDGES, (key, place)))["found"])

    async def root_count(self, key: RunKey, place: TracePlace, *, open_ids: Sequence[int]) -> RootCount:
        """See `TraceDetailReader`."""
        return RootCount(**await self._one(ROOT_COUNT, (key, place), open=list(open_ids)))

    async def roots(
        self, key: RunKey, place: TracePlace, *, open_ids: Sequence[int], limit: int, after: Key | None
    ) -> Sequence[SpanPlace]:
        """See `TraceDetailReader`."""
        values = _of_page(limit, after)
        return _places(await self._select(ROOTS, (key, place), open=list(open_ids), **values))

    async def children(
        self, key: RunKey, place: TracePlace, *, parent: int, limit: int, after: Key | None
    ) -> Sequence[SpanPlace]:
        """See `TraceDetailReader`."""
        return _places(await self._select(CHILDREN, (key, place), parent=parent, **_of_page(limit, after)))

    async def families(
        self, key: RunKey, place: TracePlace, *, span_ids: Sequence[int], parent: int | None
    ) -> Families:
        """See `TraceDetailReader`."""
        ids = [*span_ids] if parent is None else [*span_ids, parent]
        found = (await self._select(FAMILIES, (key, place), ids=ids, itself=parent or 0)).records()
        copies = [SpanPlace(row["began"], parent or 0, row["parent_span_id"]) for row in found if row["rows"]]
        asked = frozenset(ids)
        families = {
            row["parent_span_id"]: Family(row["children"], row["first_child"])
            for row in found
            if row["parent_span_id"] in asked
        }
        return Families(families, min(copies, default=None))

    async def inner_edges(self, key: RunKey, place: TracePlace) -> Table | None:
        """See `TraceDetailReader`."""
        table = await self._select(INNER_EDGES, (key, place))
        return None if table.columns and len(table.columns[0]) > MOST_INNER_EDGES else table

    async def spans(self, key: RunKey, place: TracePlace, *, shown: Sequence[SpanPlace]) -> Sequence[Record]:
        """See `TraceDetailReader`."""
        last = max((one.start_ns for one in shown), default=0)
        table = await self._select(SPANS, (key, place), last=last, ids=[one.span_id for one in shown])
        return table.records()

    async def events(self, key: RunKey, place: TracePlace, *, span_ids: Sequence[int]) -> Sequence[Record]:
        """See `TraceDetailReader`."""
        window = event_window(place.first_start_ns, place.last_end_ns)
        table = await self._select(EVENTS, (key, place), ids=list(span_ids), **window)
        return table.records()

    async def _select(self, statement: str, of: tuple[RunKey, TracePlace], **values: Value) -> Table:
        key, place = of
        return await self._clickhouse.select(statement, {**of_trace(key, place), **values})

    async def _one(self, statement: str, of: tuple[RunKey, TracePlace], **values: Value) -> Record:
        (found,) = (await self._select(statement, of, **values)).records()
        return found


def of_trace(key: RunKey, place: TracePlace) -> dict[str, Value]:
    """The values of `OF_TRACE`."""
    where: dict[str, Value] = {"project": key.project, "run": key.run, "hi": place.hi, "lo": place.lo}
    return where | {"steps": list(place.steps), "first": place.first_start_ns, "end": place.last_end_ns}


def event_window(first_start_ns: int, last_end_ns: int) -> dict[str, Value]:
    """When the events of spans are, as `since` and `until`, within the times that the store knows."""
    return {
        "since": max(first_start_ns - EVENT_SLACK_NS, -(2**63)),
        "until": min(last_end_ns + EVENT_SLACK_NS, 2**63 - 1),
    }


def _of_page(limit: int, after: Key | None) -> dict[str, Value]:
    start, span = after or (-(2**63), 0)
    return {"start": start, "span": span, "limit": limit}


def _places(table: Table) -> list[SpanPlace]:
    return [SpanPlace(*row) for row in zip(*table.columns, strict=True)]
