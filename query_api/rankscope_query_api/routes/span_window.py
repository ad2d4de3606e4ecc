"""A span of a trace with what is around it, however large the trace is."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_query_api.answers import Json, json_answer
from rankscope_query_api.errors import NotFoundError
from rankscope_query_api.places import SpanPlace
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, TraceId, store_of
from rankscope_query_api.routes.one_trace import Held, Level, OneTrace, trace_of
from rankscope_query_api.routes.records import gap_json, span_hex
from rankscope_query_api.siblings import Siblings
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["traces"])

MOST_ANCESTORS = 200
"""Ancestors that are shown, the nearest."""

_MOST_OPEN = 5_000
"""Spans open at one moment that ancestors are looked for among: those of 1,000 ranks, five deep."""

_CLIMBED = 16
"""Ancestors that are looked for one by one, where clocks hid them from the scan for all."""


class WindowQuery(InProject):
    """Which span, and how much of what is around it."""

    span: str = Field(pattern="^[0-9a-fA-F]{16}$", description="Span id, 16 hex digits.")
    around: int = Field(default=100, ge=1, le=500, description="Most siblings on either side, and most children.")


class _Line(NamedTuple):
    """A span's ancestors, the nearest first; whether they go up to a root, and whether they lead back to it."""

    ancestors: Sequence[SpanPlace]
    is_whole: bool
    is_cycle: bool


class _Row(NamedTuple):
    """A span's siblings with itself among them, and how many there are."""

    shown: Sequence[SpanPlace]
    total: int
    is_of_roots: bool
    has_before: bool
    has_after: bool


@router.get("/runs/{run}/traces/{trace}/window")
async def show_window(
    request: Request, run: Run, trace: TraceId, *, query: Annotated[WindowQuery, Query()]
) -> Response:
    """Shows a span with its ancestors, the siblings before and after it, and its first children.

    `items` are the siblings by start, the span itself at place `at` of them. Starts are what each process's own clock
    said; a span is `late` where it lies outside its parent and both are of one rank.
    """
    store, key = store_of(request), RunKey(query.project, run)
    found, gaps = await asyncio.gather(trace_of(store, key, trace=trace), store.runs.gaps(key, sections=("spans",)))
    span = int(query.span, 16)
    itself, children_total = await _itself(found, span)
    line, row, children = await asyncio.gather(
        _line(found, itself),
        _row(found, itself, around=query.around),
        found.store.detail.children(key, found.place, parent=span, limit=query.around + 1, after=None),
    )
    below = sorted({*children, *found.open_below(span)})[: query.around]
    held = await found.held([*line.ancestors, *row.shown, *below])
    siblings = _items(found, held, places=row.shown, is_of_roots=row.is_of_roots)
    above = _items(found, held, places=line.ancestors[::-1], is_of_roots=False)
    shown_below = _items(found, held, places=below, is_of_roots=False)
    marked = _Marked(above, siblings, shown_below, at=_place_of(query.span, siblings))
    return json_answer(
        {
            "run_id": run,
            "trace_id": trace.lower(),
            "span_id": span_hex(span),
            **marked.as_json(),
            "total": row.total,
            "has_before": row.has_before,
            "has_after": row.has_after,
            "children_total": children_total,
            "is_whole_above": line.is_whole,
            "warnings": _warnings(line, row),
            "gaps": [gap_json(gap) for gap in gaps],
        }
    )


async def _itself(found: OneTrace, span: int) -> tuple[SpanPlace, int]:
    """Where a span stands, and how many children it has.

    Raises:
        NotFoundError: The trace has no such span.
    """
    families = await found.store.detail.families(found.key, found.place, span_ids=(), parent=span)
    stored, running = families.parent, found.running.get(span)
    place = stored if stored is not None else running and running.place
    if place is None:
        raise NotFoundError(
            f"no span {span_hex(span)!r} in trace {found.place.hi:016x}{found.place.lo:016x}",
            hint="the routes of the trace and its spans list the ids that there are",
            code="unknown_span",
        )
    return place, families.family(span).children + len(found.open_below(span))


async def _line(found: OneTrace, itself: SpanPlace) -> _Line:
    """The span's ancestors."""
    if not itself.parent_span_id:
        return _Line((), is_whole=True, is_cycle=False)
    open_then = await found.store.window.around(found.key, found.place, of=itself, limit=_MOST_OPEN)
    known = {one.span_id: one for one in (*open_then, *(span.place for span in found.running.values()))}
    line: list[SpanPlace] = []
    seen, above, climbed = {itself.span_id}, itself.parent_span_id, 0
    while above and len(line) < MOST_ANCESTORS:
        if above in seen:
            return _Line(line, is_whole=True, is_cycle=True)
        place = known.get(above)
        if place is None and climbed < _CLIMBED:
            climbed += 1
            found_above = await found.store.detail.families(found.key, found.place, span_ids=(), parent=above)
            place = found_above.parent
        if place is None:
            return _Line(line, is_whole=climbed < _CLIMBED, is_cycle=False)
        seen.add(above)
        line.append(place)
        above = place.parent_span_id
    return _Line(line, is_whole=not above, is_cycle=False)


async def _row(found: OneTrace, itself: SpanPlace, *, around: int) -> _Row:
    """The span's siblings on both sides; of one whose parent is nowhere, the other roots."""
    parent = itself.parent_span_id
    total, is_of_roots = await _siblings(found, parent)
    read = _roots_beside if is_of_roots else _children_beside
    before, after = await read(found, itself, limit=around + 1)
    extra = [one for one in found.open_below(0 if is_of_roots else parent) if one.span_id != itself.span_id]
    earlier = sorted({*before, *(one for one in extra if one < itself)})
    later = sorted({*after, *(one for one in extra if one > itself)} - {itself})
    return _Row(
        shown=[*earlier[-around:], itself, *later[:around]],
        total=total,
        is_of_roots=is_of_roots,
        has_before=len(earlier) > around,
        has_after=len(later) > around,
    )


async def _siblings(found: OneTrace, parent: int) -> tuple[int, bool]:
    """How many children a span's parent has, and whether there is none, so that they are the roots."""
    if parent:
        families = await found.store.detail.families(found.key, found.place, span_ids=(), parent=parent)
        if families.parent is not None or parent in found.running:
            return families.family(parent).children + len(found.open_below(parent)), False
    roots = await found.store.detail.root_count(found.key, found.place, open_ids=list(found.running))
    return roots.total + len(found.open_below(0)), True


async def _children_beside(
    found: OneTrace, itself: SpanPlace, *, limit: int
) -> tuple[Sequence[SpanPlace], Sequence[SpanPlace]]:
    after = (itself.start_ns, itself.span_id)
    return await asyncio.gather(
        found.store.window.siblings_before(found.key, found.place, of=itself, limit=limit),
        found.store.detail.children(found.key, found.place, parent=itself.parent_span_id, limit=limit, after=after),
    )


async def _roots_beside(
    found: OneTrace, itself: SpanPlace, *, limit: int
) -> tuple[Sequence[SpanPlace], Sequence[SpanPlace]]:
    after, open_ids = (itself.start_ns, itself.span_id), list(found.running)
    return await asyncio.gather(
        found.store.window.roots_before(found.key, found.place, of=itself, open_ids=open_ids, limit=limit),
        found.store.detail.roots(found.key, found.place, open_ids=open_ids, limit=limit, after=after),
    )


def _items(found: OneTrace, held: Held, *, places: Sequence[SpanPlace], is_of_roots: bool) -> Sequence[dict[str, Json]]:
    return found.items(Level(Siblings(places, None), held, len(places), is_of_roots=is_of_roots))


def _place_of(span: str, siblings: Sequence[Mapping[str, Json]]) -> int:
    return next(place for place, one in enumerate(siblings) if one["span_id"] == span.lower())


class _Marked(NamedTuple):
    """The spans of a window."""

    ancestors: Sequence[dict[str, Json]]
    items: Sequence[dict[str, Json]]
    children: Sequence[dict[str, Json]]
    at: int

    def as_json(self) -> dict[str, Json]:
        """Each with whether it is late."""
        above = [None, *self.ancestors]
        return {
            "ancestors": [_with_lateness(one, parent) for one, parent in zip(self.ancestors, above, strict=False)],
            "items": [_with_lateness(one, above[-1]) for one in self.items],
            "at": self.at,
            "children": [_with_lateness(one, self.items[self.at]) for one in self.children],
        }


def _with_lateness(span: dict[str, Json], parent: Mapping[str, Json] | None) -> dict[str, Json]:
    """A span with whether it begins before its parent or ends after it, as far as one clock told both."""
    is_known = parent is not None and all(span[name] == parent[name] for name in ("launch_id", "rank"))
    late = is_known and parent is not None and _is_outside(_extent(span), _extent(parent))
    return {**span, "late": late and span["parent_span_id"] == (parent or {}).get("span_id")}


def _extent(span: Mapping[str, Json]) -> tuple[int, int | None]:
    start, lasted = span["start_ns"], span["duration_ns"]
    begun = start if isinstance(start, int) else 0
    return begun, begun + lasted if isinstance(lasted, int) else None


def _is_outside(span: tuple[int, int | None], parent: tuple[int, int | None]) -> bool:
    ends_after = span[1] is not None and parent[1] is not None and span[1] > parent[1]
    return span[0] < parent[0] or ends_after


def _warnings(line: _Line, row: _Row) -> list[str]:
    found: list[str] = []
    if line.is_cycle:
        found.append("its ancestors lead back to it: they are shown once")
    if row.is_of_roots and row.shown and any(one.parent_span_id for one in row.shown):
        found.append("spans that name a parent that is not stored are shown among the roots")
    return found
