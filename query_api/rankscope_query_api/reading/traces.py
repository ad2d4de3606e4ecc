"""Traces as rows of a list, the latest first, with how many there are.

The index has a trace in as many rows as inserts brought spans of it, until merges join them, and the start of a trace
is the least of its rows'. So a page is looked for among the latest rows first, and their traces' true starts are asked
for: a trace that starts where the last of these rows does, or later, has its first row among them. Where too few
traces are left, all of the index is grouped. Nothing of this depends on how batches were cut.

Where the latest rows end is guessed from the list's last page: with a bound, a fifth of the time is taken, and a guess
that left too few rows is made good without one.

What each trace of a page comes to is computed from its spans, which steps, ranks and times of the index lead to.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_query_api.answers import Key
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.living import RunningSpan, with_running
from rankscope_query_api.reading.open_now import OpenNow, OpenTrace, scoped
from rankscope_query_api.reading.reaches import Reaches
from rankscope_query_api.reading.totals import Totals
from rankscope_query_api.reading.trace_filters import TraceSets
from rankscope_query_api.summaries import FIRST_COPY, NOTHING_STORED, SPAN_COLUMNS, SUMMARY
from rankscope_query_api.values import Record, Slice, TraceFilter, TraceScope, Value

ROWS_A_TRACE = 4
"""Rows of the index that are looked at for each trace wanted: a trace of few batches has no more."""

MOST_ROWS = 4_000
"""Beyond so many rows all of the index is grouped at once."""

_FIRST: Key = (2**63 - 1, 2**64 - 1, 2**64 - 1, "")

# Columns apart, not as pairs: a third of the time, and whoever asks passes over a trace that mixes two.
_PICKED = "trace_hi IN {his:Array(UInt64)} AND trace_lo IN {los:Array(UInt64)}"

PLACES = f"""
SELECT
    run_id,
    trace_hi,
    trace_lo,
    min(first_start) AS started_ns,
    max(last_end) AS ended_ns,
    groupUniqArrayArray(trace_index.steps) AS steps,
    groupUniqArrayArray(trace_index.ranks) AS ranks
FROM trace_index
WHERE project = {{project:String}} AND run_id IN {{runs:Array(String)}} AND {_PICKED}
GROUP BY run_id, trace_hi, trace_lo"""

SUMMARIES = f"""
SELECT run_id, trace_hi, trace_lo, {SUMMARY}
FROM (
    SELECT run_id, trace_hi, trace_lo, {SPAN_COLUMNS}
    FROM spans
    WHERE project = {{project:String}} AND run_id IN {{runs:Array(String)}}
        AND toInt64(ifNull(step, -1)) IN {{steps:Array(Int64)}} AND rank IN {{ranks:Array(Int32)}}
        AND start BETWEEN {{first:Int64}} AND {{last:Int64}} AND {_PICKED}
    ORDER BY {FIRST_COPY}
    LIMIT 1 BY run_id, trace_hi, trace_lo, span_id
)
GROUP BY run_id, trace_hi, trace_lo"""


@dataclass(frozen=True, slots=True)
class Listed:
    """The statements of one list: which rows of the index are its traces'.

    Attributes:
        newest: Rows of the index, the latest first.
        grouped: Traces, the latest first.
        total: Number of traces.
    """

    newest: str
    grouped: str
    total: str


def listed(run: str | None, sets: TraceSets, *, has_open: bool) -> Listed:
    """The statements for a scope and a filter.

    Args:
        run: The run; None: all of the project.
        sets: The filter.
        has_open: Whether open traces (`open_runs`, `open_his`, `open_los`, `open_starts`) are rows as well.
    """
    order = ("trace_hi", "trace_lo", *(("run_id",) if run is None else ()))
    given = ("{started:Int64}", "{hi:UInt64}", "{lo:UInt64}", *(("{after_run:String}",) if run is None else ()))
    after, columns = ", ".join(given), ", ".join(order)
    descending = ", ".join(f"{column} DESC" for column in order)
    rows = _rows(run, has_open=has_open) + sets.conditions
    # A run's id is hashed once a block; as it is, it would be hashed once a row.
    keys = "trace_hi, trace_lo" if run is not None else "cityHash64(run_id), trace_hi, trace_lo"
    window = "min(first_start) >= {since:Int64} AND min(first_start) < {until:Int64}"
    named = "run_id AS of_run" if run is None else "{run:String} AS of_run"
    newest = f"""
SELECT {named}, trace_hi, trace_lo, first_start
FROM {rows}
    AND first_start >= {{least:Int64}} AND first_start < {{until:Int64}} AND first_start <= {{started:Int64}}
    AND (first_start, {columns}) < ({after})
ORDER BY first_start DESC, {descending}
LIMIT {{rows:UInt32}}"""
    grouped = f"""
SELECT {named}, trace_hi, trace_lo, min(first_start) AS started_ns
FROM {rows}
GROUP BY {columns}
HAVING {window} AND (started_ns, {columns}) < ({after})
ORDER BY started_ns DESC, {descending}
LIMIT {{rows:UInt32}}"""
    having = f" HAVING {window}" if sets.has_window else ""  # a third of the time, where it is not needed
    total = f"SELECT count() AS total FROM (SELECT 1 FROM {rows} GROUP BY {keys}{having})"
    return Listed(newest, grouped, total)


def _rows(run: str | None, *, has_open: bool) -> str:
    """Rows of the index with a WHERE that conditions can be added to."""
    stored = f"trace_index WHERE {scoped(run)}"
    if not has_open:
        return stored
    return f"""(
    SELECT run_id, trace_hi, trace_lo, first_start FROM {stored}
    UNION ALL
    SELECT one.1, one.2, one.3, one.4 FROM (
        SELECT arrayJoin(arrayZip(
            {{open_runs:Array(String)}}, {{open_his:Array(UInt64)}}, {{open_los:Array(UInt64)}},
            {{open_starts:Array(Int64)}}
        )) AS one
    )
) WHERE true"""


def _example(run: str | None, *, has_open: bool) -> Sequence[str]:
    """Statements with all filters, for the test that reads them."""
    span = RunningSpan((1, 2), 3, 0, "abcd", 1, 1, 1, 0, 0, "main", "00")
    open_now = {("r", 1, 2): [span]} if has_open else {}
    scope = TraceScope("p", run)
    found: list[str] = []
    for status in ("ok", "error", "running", "cancelled", "interrupted"):
        where = TraceFilter(1, "abcd", 0, 0, 9, status=status, least_ns=0, terms=("abcd", "1"))
        made = listed(run, TraceSets(scope, where, open_now=open_now), has_open=has_open)
        found += (made.newest, made.grouped, made.total)
    labelled = TraceFilter(error_type="e", attributes=(("a", "b"), ("c", "1.5")), since_ns=0)
    return [*found, listed(run, TraceSets(scope, labelled, open_now=open_now), has_open=has_open).total]


OF_PROJECT = (*_example(None, has_open=False), *_example(None, has_open=True))
"""Statements that read all runs of a project."""

STATEMENTS = (PLACES, SUMMARIES, *_example("r", has_open=False), *_example("r", has_open=True), *OF_PROJECT)
"""Every statement of this module, for the test that reads them."""


class ClickHouseTraces:
    """`TraceReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse
        self._open_now = OpenNow(clickhouse)
        self._totals = Totals(clickhouse)
        self._reaches = Reaches()

    async def traces(self, scope: TraceScope, where: TraceFilter, *, limit: int, after: Key | None) -> Slice[Record]:
        """See `TraceReader`."""
        open_now = await self._open_now.of(scope)
        asked = _Asked(self._clickhouse, scope, where=where, open_now=open_now, reaches=self._reaches)
        total, page = await asyncio.gather(
            self._totals.of(scope, asked.statements.total, values=asked.total_values, is_filtered=asked.is_filtered),
            asked.page(limit=limit + 1, after=after or _FIRST),
        )
        last = asked.key(page[limit - 1]) if len(page) > limit else None
        return Slice(await asked.summed_up(page[:limit]), total, last)

    async def latest(self, scope: TraceScope, *, limit: int) -> Sequence[Record]:
        """See `TraceReader`."""
        open_now = await self._open_now.of(scope)
        asked = _Asked(self._clickhouse, scope, where=TraceFilter(), open_now=open_now, reaches=self._reaches)
        return await asked.summed_up(await asked.page(limit=limit, after=_FIRST))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a trace lies: its ids, its start, and what leads to its spans."""

    trace: OpenTrace
    started_ns: int
    ended_ns: int
    steps: Sequence[int]
    ranks: Sequence[int]


class _Asked:
    """One list that is asked for."""

    def __init__(
        self,
        clickhouse: Selecting,
        scope: TraceScope,
        *,
        where: TraceFilter,
        open_now: Mapping[OpenTrace, Sequence[RunningSpan]],
        reaches: Reaches,
    ) -> None:
        self._clickhouse = clickhouse
        self._scope = scope
        self._reaches = reaches
        # The default window moves on every minute, and is no other list.
        self._name = repr((scope, replace(where, since_ns=None)))
        self._open = open_now
        sets = TraceSets(scope, where, open_now=open_now)
        self.is_filtered = bool(sets.conditions)
        self.statements = listed(scope.run, sets, has_open=bool(open_now))
        self._since = -(2**63) if where.since_ns is None else where.since_ns
        self._until = 2**63 - 1 if where.until_ns is None else where.until_ns
        self.total_values: dict[str, Value] = {
            **sets.values,
            **(self._open_values() if open_now else {}),
            "since": self._since,
            "until": self._until,
        }

    def key(self, place: _Place) -> Key:
        """Where a trace stands in the list."""
        run, hi, lo = place.trace
        return place.started_ns, hi, lo, run

    async def page(self, *, limit: int, after: Key) -> list[_Place]:
        """Up to so many traces behind a key, the latest first."""
        rows = limit * ROWS_A_TRACE
        if rows <= MOST_ROWS:
            newest = await self._newest(rows=rows, after=after)
            known = await self._certain(newest, limit=limit, is_all=len(newest) < rows)
            if len(newest) < rows or len(known) >= limit:
                return known[:limit]
        grouped = await self._ids(self.statements.grouped, rows=limit, after=after)
        return await self._placed([trace for trace, _ in grouped])

    async def _certain(self, newest: Sequence[tuple[OpenTrace, int]], *, limit: int, is_all: bool) -> list[_Place]:
        """The traces that these rows are certain of: no other starts later than the last of them does.

        A trace starts no later than any of its rows, so those that were not placed start no later than their latest.
        """
        latest = dict[OpenTrace, int]()
        for trace, start in newest:
            latest.setdefault(trace, start)
        traces, known = list(latest), list[_Place]()
        # To place a trace is to read 8,192 rows of each part, so no more are than a page probably takes: a page deep
        # in a million traces took 40 ms of CPU for four times as many, and takes 27.
        for count in (limit * 5 // 4, len(traces)):
            places = await self._placed(traces[:count])
            known = [place for place in places if place.started_ns >= self._since]
            if count < len(traces):
                known = self._from(known, (traces[count], latest[traces[count]]))
            elif newest and not is_all:
                known = self._from(known, newest[-1])
            if len(known) >= limit or count >= len(traces):
                break
        return known

    def _from(self, places: Sequence[_Place], row: tuple[OpenTrace, int]) -> list[_Place]:
        """Those of these that stand where that row of the index does, or before it."""
        (run, hi, lo), start = row
        return [place for place in places if self.key(place) >= (start, hi, lo, run)]

    async def summed_up(self, places: Sequence[_Place]) -> list[Record]:
        """What the spans of these traces come to, with what is open of them."""
        stored = await self._summaries([place for place in places if place.ranks])
        return [self._summed_up(place, stored.get(place.trace)) for place in places]

    def _open_values(self) -> dict[str, Value]:
        traces = sorted(self._open)
        return {
            "open_runs": [run for run, _, _ in traces],
            "open_his": [hi for _, hi, _ in traces],
            "open_los": [lo for _, _, lo in traces],
            "open_starts": [min(span.start_ns for span in self._open[trace]) for trace in traces],
        }

    async def _newest(self, *, rows: int, after: Key) -> list[tuple[OpenTrace, int]]:
        """The latest rows of the index behind a key: not back to the begin, where fewer are known to do."""
        is_first, begin = after == _FIRST, after[0]
        begin_ns = begin if isinstance(begin, int) and not is_first else None
        guessed = self._reaches.least_ns(self._name, begin_ns=begin_ns, rows=rows)
        least = self._since if guessed is None else max(guessed, self._since)
        newest = await self._ids(self.statements.newest, rows=rows, after=after, least=least)
        if len(newest) < rows and least > self._since:
            newest = await self._ids(self.statements.newest, rows=rows, after=after, least=self._since)
        if newest:
            self._reaches.seen(self._name, [start for _, start in newest], is_first=is_first)
        return newest

    async def _ids(
        self, statement: str, *, rows: int, after: Key, least: int | None = None
    ) -> list[tuple[OpenTrace, int]]:
        """Ids of traces, each with a start, as a statement orders them; `least` is the earliest start of a row."""
        started, hi, lo, run = after
        position: dict[str, Value] = {"started": started, "hi": hi, "lo": lo, "after_run": run}
        values = {**self.total_values, **position, "rows": rows, "least": self._since if least is None else least}
        table = await self._clickhouse.select(statement, values)
        return [((run, hi, lo), start) for run, hi, lo, start in zip(*table.columns, strict=True)]

    async def _placed(self, traces: Sequence[OpenTrace]) -> list[_Place]:
        """Where these traces lie, by their place in the list."""
        if not traces:
            return []
        table = await self._clickhouse.select(PLACES, self._picked(traces))
        stored = {
            (run, hi, lo): _Place((run, hi, lo), *rest)
            for run, hi, lo, *rest in zip(*table.columns, strict=True)  # columns in the order of `_Place`
        }
        places = [self._with_open(trace, stored.get(trace)) for trace in traces]
        return sorted(places, key=self.key, reverse=True)

    def _with_open(self, trace: OpenTrace, stored: _Place | None) -> _Place:
        spans = self._open.get(trace, ())
        starts = [span.start_ns for span in spans] + ([stored.started_ns] if stored else [])
        if stored is None:
            return _Place(trace, min(starts), min(starts), (), ())
        return replace(stored, started_ns=min(starts))

    async def _summaries(self, places: Sequence[_Place]) -> dict[OpenTrace, Record]:
        if not places:
            return {}
        values: dict[str, Value] = {
            **self._picked([place.trace for place in places]),
            "steps": sorted({step for place in places for step in place.steps} | {-1}),
            "ranks": sorted({rank for place in places for rank in place.ranks}),
            "first": min(place.started_ns for place in places),
            "last": max(place.ended_ns for place in places),
        }
        records = (await self._clickhouse.select(SUMMARIES, values)).records()
        return {(record["run_id"], record["trace_hi"], record["trace_lo"]): record for record in records}

    def _summed_up(self, place: _Place, stored: Record | None) -> Record:
        run, hi, lo = place.trace
        nothing = {**NOTHING_STORED, "started_ns": place.started_ns}
        record = {**(stored or nothing), "run_id": run, "trace_hi": hi, "trace_lo": lo}
        return with_running(record, self._open.get(place.trace, ()))

    def _picked(self, traces: Sequence[OpenTrace]) -> dict[str, Value]:
        return {
            "project": self._scope.project,
            "runs": sorted({run for run, _, _ in traces}),
            "his": [hi for _, hi, _ in traces],
            "los": [lo for _, _, lo in traces],
        }
