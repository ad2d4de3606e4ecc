"""What is around one span of a trace, however large that is: siblings on both sides, and what it is part of.

Ancestors are not climbed to one by one: each step up is a scan of the trace. What was open when the span began is one
scan, and has all of them, but for those whose clock says otherwise.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.places import SpanPlace, TracePlace
from rankscope_query_api.reading.trace_detail import IS_ORPHAN, OF_TRACE, of_trace
from rankscope_query_api.values import RunKey, Table, Value

_BEFORE = """AND (start, span_id) < ({start:Int64}, {span:UInt64})
ORDER BY start DESC, span_id DESC
LIMIT {limit:UInt32}"""

SIBLINGS_BEFORE = f"""
SELECT start, span_id, parent_span_id
FROM spans
WHERE {OF_TRACE} AND parent_span_id = {{parent:UInt64}} {_BEFORE}"""

ROOTS_BEFORE = f"""
SELECT DISTINCT start, span_id, parent_span_id
FROM spans
WHERE {OF_TRACE} AND (parent_span_id = 0 OR {IS_ORPHAN}) {_BEFORE}"""

AROUND = f"""
SELECT start, span_id, parent_span_id
FROM spans
WHERE {OF_TRACE} AND start <= {{start:Int64}} AND toInt128(start) + duration >= {{start:Int64}}
ORDER BY start DESC, span_id
LIMIT {{limit:UInt32}}"""

STATEMENTS = (SIBLINGS_BEFORE, ROOTS_BEFORE, AROUND)
"""Every statement of this module, for the test that reads them."""


class ClickHouseSpanWindow:
    """`SpanWindowReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def siblings_before(
        self, key: RunKey, place: TracePlace, *, of: SpanPlace, limit: int
    ) -> Sequence[SpanPlace]:
        """See `SpanWindowReader`."""
        where: dict[str, Value] = {**_of_span(key, place, of=of), "limit": limit, "parent": of.parent_span_id}
        return _places(await self._clickhouse.select(SIBLINGS_BEFORE, where))

    async def roots_before(
        self, key: RunKey, place: TracePlace, *, of: SpanPlace, open_ids: Sequence[int], limit: int
    ) -> Sequence[SpanPlace]:
        """See `SpanWindowReader`."""
        where: dict[str, Value] = {**_of_span(key, place, of=of), "limit": limit, "open": list(open_ids)}
        return _places(await self._clickhouse.select(ROOTS_BEFORE, where))

    async def around(self, key: RunKey, place: TracePlace, *, of: SpanPlace, limit: int) -> Sequence[SpanPlace]:
        """See `SpanWindowReader`."""
        where: dict[str, Value] = {**_of_span(key, place, of=of), "limit": limit}
        return _places(await self._clickhouse.select(AROUND, where))


def _of_span(key: RunKey, place: TracePlace, *, of: SpanPlace) -> dict[str, Value]:
    return {**of_trace(key, place), "start": of.start_ns, "span": of.span_id}


def _places(table: Table) -> list[SpanPlace]:
    return [SpanPlace(*row) for row in zip(*table.columns, strict=True)]
