"""The trace that a request names, and pages of its tree: asked of the store piece by piece and put together.

A page costs what it shows and a few narrow scans of the trace. Spans that a living process has open stand among their
siblings. A span whose parent is neither stored nor open is a root, and so is the earliest span of a cycle; of a span
that is stored more than once the first copy is shown, in its place.

Statements that do not need one another run side by side, and each is asked as early as it can be: planning one takes
the store 2 to 5 ms, which is half of what a page of children costs.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rankscope_query_api.answers import Json, Key
from rankscope_query_api.errors import NotFoundError, unknown
from rankscope_query_api.living import RunningSpan
from rankscope_query_api.places import Families, RootCount, SpanPlace, TracePlace
from rankscope_query_api.routes.asking import PREFIX, launches_of
from rankscope_query_api.routes.records import running_span_json, span_event_json, span_json
from rankscope_query_api.siblings import Siblings, count_of, cycle_cuts, page_of
from rankscope_query_api.store import TraceStore
from rankscope_query_api.trace_store import EVENTS_A_SPAN
from rankscope_query_api.values import Record, RunKey


@dataclass(slots=True)
class Cycles:
    """The cycles of parents of a trace, looked for once, and only where there may be one.

    Attributes:
        cuts: The span at which each is cut, by id; what was not looked for is not there.
        is_looked_for: Whether they were looked for.
        is_unknown: Whether they were looked for in vain: the trace has too many spans with children.
    """

    cuts: Mapping[int, SpanPlace] = field(default_factory=dict[int, SpanPlace])
    is_looked_for: bool = False
    is_unknown: bool = False

    def below(self, parent: int) -> int:
        """Children that a span has lost."""
        return sum(1 for cut in self.cuts.values() if cut.parent_span_id == parent)


class Held(NamedTuple):
    """What some spans hold.

    Attributes:
        records: The stored ones as they are, by id.
        events: What happened in each, by id, with one event more than is shown.
        families: Their children.
    """

    records: Mapping[int, Record]
    events: Mapping[int, Sequence[Record]]
    families: Families


class Level(NamedTuple):
    """A page of siblings.

    Attributes:
        page: The siblings.
        held: What they hold.
        total: How many they are over all pages.
        is_of_roots: Whether they are the roots of the trace.
        orphans: Of roots, how many have a parent that is nowhere.
    """

    page: Siblings
    held: Held
    total: int
    is_of_roots: bool
    orphans: int = 0


@dataclass(frozen=True, slots=True)
class OneTrace:
    """A trace of a run.

    Attributes:
        store: What it is read from.
        key: Its run.
        place: Where it lies.
        running: Its spans that a living process has open and that are not stored, by id.
        cycles: What is known of its cycles.
    """

    store: TraceStore
    key: RunKey
    place: TracePlace
    running: Mapping[int, RunningSpan]
    cycles: Cycles = field(default_factory=Cycles)

    async def roots(self, *, limit: int, after: Key | None) -> Level:
        """A page of the roots."""
        detail, open_ids = self.store.detail, list(self.running)
        stored, _ = await asyncio.gather(
            detail.roots(self.key, self.place, open_ids=open_ids, limit=limit + 1, after=after),
            self._look_for_any_cycle(),
        )
        extra = [*self.cycles.cuts.values(), *self.open_below(0)]
        page = page_of(stored, extra, limit=limit, after=after)
        is_all = after is None and len(stored) <= limit
        count, held = await asyncio.gather(
            _at_once(count_of(stored)) if is_all else detail.root_count(self.key, self.place, open_ids=open_ids),
            self.held(page.shown),
        )
        return Level(page, held, count.total + len(extra), is_of_roots=True, orphans=count.orphans)

    async def children(self, parent: int, *, limit: int, after: Key | None) -> Level:
        """A page of the children of a span.

        Raises:
            NotFoundError: The trace has no such span.
        """
        # One more than a page and its successor: of a span's children at most one is cut away.
        stored = await self.store.detail.children(self.key, self.place, parent=parent, limit=limit + 2, after=after)
        extra = self.open_below(parent)
        held = await self.held([*stored, *extra], parent=parent)
        itself = held.families.parent
        if itself is None and parent not in self.running:
            raise NotFoundError(
                f"no span {f'{parent:016x}'!r} in trace {self.place.hi:016x}{self.place.lo:016x}",
                hint="leave `parent` out for the roots of the trace",
                code="unknown_span",
            )
        if itself is not None and _may_be_of_cycle(itself, stored, families=held.families):
            await self._look_for_cycles()
        kept = [one for one in stored if one.span_id not in self.cycles.cuts]
        page = page_of(kept, extra, limit=limit, after=after)
        total = held.families.family(parent).children + len(extra) - self.cycles.below(parent)
        return Level(page, held, total, is_of_roots=False)

    def items(self, level: Level) -> list[dict[str, Json]]:
        """The spans of a page, each with its events and the number of its children."""
        open_children = Counter(span.parent_span_id for span in self.running.values())
        held, cuts = level.held, self.cycles.cuts
        return [
            {
                **shown,
                "events": [span_event_json(event) for event in held.events.get(one.span_id, ())[:EVENTS_A_SPAN]],
                "has_more_events": len(held.events.get(one.span_id, ())) > EVENTS_A_SPAN,
                "child_count": held.families.family(one.span_id).children
                + open_children[one.span_id]
                - self.cycles.below(one.span_id),
                "orphan": level.is_of_roots and bool(one.parent_span_id) and one.span_id not in cuts,
                "cycle_cut": one.span_id in cuts,
            }
            for one in level.page.shown
            if (shown := self._shown(one, held.records.get(one.span_id))) is not None
        ]

    async def held(self, places: Sequence[SpanPlace], *, parent: int | None = None) -> Held:
        """What spans hold; with a parent, its children too."""
        if not places and parent is None:
            return Held({}, {}, Families({}))
        detail, ids = self.store.detail, [one.span_id for one in places]
        records, events, families = await asyncio.gather(
            detail.spans(self.key, self.place, shown=places),
            detail.events(self.key, self.place, span_ids=ids),
            detail.families(self.key, self.place, span_ids=ids, parent=parent),
        )
        happened: defaultdict[int, list[Record]] = defaultdict(list)
        for event in events:
            happened[event["span_id"]].append(event)
        return Held({record["span_id"]: record for record in records}, happened, families)

    def _shown(self, one: SpanPlace, record: Record | None) -> dict[str, Json] | None:
        """A span as it is; None: this is the place of a copy that is not the first."""
        if record is None:
            return running_span_json(self.running[one.span_id]) if one.span_id in self.running else None
        is_first = (record["start"], record["parent_span_id"]) == (one.start_ns, one.parent_span_id)
        return span_json(record) if is_first else None

    def open_below(self, parent: int) -> list[SpanPlace]:
        """The spans below one that are open and not stored."""
        return [span.place for span in self.running.values() if span.parent_span_id == parent]

    async def _look_for_any_cycle(self) -> None:
        if await self.store.detail.has_back_edges(self.key, self.place):
            await self._look_for_cycles()

    async def _look_for_cycles(self) -> None:
        if self.cycles.is_looked_for:
            return
        self.cycles.is_looked_for = True
        edges = await self.store.detail.inner_edges(self.key, self.place)
        self.cycles.is_unknown = edges is None
        if edges is not None and edges.columns:
            span_ids, parents, starts = edges.columns
            self.cycles.cuts = await asyncio.to_thread(cycle_cuts, span_ids, parents, starts=starts)


async def trace_of(store: TraceStore, key: RunKey, *, trace: str) -> OneTrace:
    """The trace of a run, stored or only begun.

    Args:
        store: What to read from.
        key: The run.
        trace: 32 hex digits.

    Raises:
        NotFoundError: The project has no such run, or the run no such trace.
    """
    hi, lo = int(trace[:16], 16), int(trace[16:], 16)
    place, running = await asyncio.gather(store.detail.place(key, (hi, lo)), store.detail.running(key, (hi, lo)))
    if not place.is_stored and not running:
        await launches_of(store, key)
        lister = f"GET {PREFIX}/runs/{key.run}/traces"
        raise unknown("trace", trace.lower(), project=key.project, known=(), lister=lister)
    return OneTrace(store, key, _with_open(place, running), {span.span_id: span for span in running})


def _with_open(place: TracePlace, running: Sequence[RunningSpan]) -> TracePlace:
    """Where the trace lies with its open spans: they began before what is stored of it, and events of them go on."""
    if not running:
        return place
    starts, ends = [span.start_ns for span in running], [span.heartbeat_ns for span in running]
    if place.is_stored:
        starts, ends = [*starts, place.first_start_ns], [*ends, place.last_end_ns]
    return replace(place, first_start_ns=min(starts), last_end_ns=max(ends))


def _may_be_of_cycle(itself: SpanPlace, children: Iterable[SpanPlace], *, families: Families) -> bool:
    """Whether a cycle of parents may lead through a span, or through one of its children, which leads through it too.

    One that has no parent is of none, and each cycle has an edge that begins no later than the span above it.
    """
    if not itself.parent_span_id:
        return False
    return any(families.family(one.span_id).has_back_edge(one.start_ns) for one in (itself, *children))


async def _at_once(count: RootCount) -> RootCount:
    return count
