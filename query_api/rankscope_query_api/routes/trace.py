"""One trace: what it comes to as a whole, and its tree, a page of siblings at a time."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_query_api.answers import Json, Page, json_answer
from rankscope_query_api.living import with_running
from rankscope_query_api.routes.asking import PREFIX, InProject, Paged, Run, TraceId, store_of
from rankscope_query_api.routes.one_trace import Cycles, Level, OneTrace, trace_of
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.summaries import summary_json
from rankscope_query_api.trace_store import SIBLING_KEY
from rankscope_query_api.trees import tree_warnings
from rankscope_query_api.values import Record, RunKey

router = APIRouter(prefix=PREFIX, tags=["traces"])

SPANS_PATH = "/runs/{run}/traces/{trace}/spans"

MOST_SIBLINGS = 1_000
"""Spans of a page at most: each may bring 12 KiB of previews."""


class TraceDetailQuery(InProject):
    """How much of the trace is shown beside its totals."""

    limit: int = Field(default=100, ge=1, le=MOST_SIBLINGS, description="Most roots in the answer.")


class ChildQuery(Paged):
    """Whose children."""

    limit: int = Field(default=100, ge=1, le=MOST_SIBLINGS, description="Most spans in the answer.")
    parent: str | None = Field(
        default=None, pattern="^[0-9a-fA-F]{16}$", description="Span id, 16 hex digits; left out: the roots."
    )


@router.get("/runs/{run}/traces/{trace}")
async def show_trace(
    request: Request, run: Run, trace: TraceId, *, query: Annotated[TraceDetailQuery, Query()]
) -> Response:
    """Shows one trace: its totals and its status over all its spans, and its first roots.

    `next` is taken as `after` by the list of the trace's spans, which also has the children of each.
    """
    found, gaps = await _trace_and_gaps(request, RunKey(query.project, run), trace=trace)
    totals, roots = await asyncio.gather(
        found.store.detail.totals(found.key, found.place), found.roots(limit=query.limit, after=None)
    )
    listing = listing_of(request, ChildQuery(project=query.project), path=PREFIX + SPANS_PATH)
    warnings = _warnings(roots, found.cycles, copies=totals["copies"])
    page = Page(
        found.items(roots), roots.total, listing.cursor(roots.page.next), warnings, [gap_json(gap) for gap in gaps]
    )
    summary = summary_json(with_running(totals, list(found.running.values())), trace.lower())
    faults: dict[str, Json] = {
        "orphans": roots.orphans,
        "cycles": len(found.cycles.cuts),
        "copies": totals["copies"],
    }
    return json_answer({"run_id": run, **summary, **faults, **page.as_json()})


@router.get(SPANS_PATH)
async def list_children(
    request: Request, run: Run, trace: TraceId, *, query: Annotated[ChildQuery, Query()]
) -> Response:
    """Lists the children of a span, or the roots of the trace, by start.

    A span whose parent is not there, and the earliest span of a cycle, are roots and say so.
    """
    listing = listing_of(request, query)
    after = listing.begin(SIBLING_KEY)
    found, gaps = await _trace_and_gaps(request, RunKey(query.project, run), trace=trace)
    if query.parent is None:
        level = await found.roots(limit=query.limit, after=after)
    else:
        level = await found.children(int(query.parent, 16), limit=query.limit, after=after)
    warnings = _warnings(level, found.cycles)
    page = Page(
        found.items(level), level.total, listing.cursor(level.page.next), warnings, [gap_json(gap) for gap in gaps]
    )
    return json_answer(page.as_json())


async def _trace_and_gaps(request: Request, key: RunKey, *, trace: str) -> tuple[OneTrace, Sequence[Record]]:
    """The trace and what lacks of its run's spans, asked for side by side."""
    store = store_of(request)
    return await asyncio.gather(trace_of(store, key, trace=trace), store.runs.gaps(key, sections=("spans",)))


def _warnings(level: Level, cycles: Cycles, *, copies: int = 0) -> Sequence[str]:
    """What is wrong with the rows, a sentence each."""
    found = tree_warnings(orphans=level.orphans, cycles=len(cycles.cuts), copies=copies)
    if cycles.is_unknown:
        found.append("too many spans have children to look for cycles of parents: spans of one are below no root")
    return found
