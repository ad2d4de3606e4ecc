"""One trace: its spans, as they are opened."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_query_api.answers import Json, Key, Page, json_answer
from rankscope_query_api.errors import NotFoundError, unknown
from rankscope_query_api.routes.asking import PREFIX, Paged, Run, TraceId, launches_of, store_of
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import gap_json, span_json
from rankscope_query_api.store import TraceStore
from rankscope_query_api.trees import Forest, build_forest
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["traces"])

CHILD_KEY = (int, int)
"""Shape of the key of a list of children: (start, span id)."""


class ChildQuery(Paged):
    """Whose children."""

    parent: str | None = Field(
        default=None, pattern="^[0-9a-fA-F]{16}$", description="Span id, 16 hex digits; left out: the roots."
    )


@router.get("/runs/{run}/traces/{trace}/spans")
async def list_children(
    request: Request, run: Run, trace: TraceId, *, query: Annotated[ChildQuery, Query()]
) -> Response:
    """Lists the children of a span, or the roots of the trace, by start.

    A span whose parent is not stored, and the earliest span of a cycle, are roots and say so.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    ids = int(trace[:16], 16), int(trace[16:], 16)
    edges = await store.spans.edges(key, ids)
    if not edges.span_id:
        raise unknown("trace", trace.lower(), project=query.project, known=(), lister=f"GET /api/v1/runs/{run}/traces")
    forest = await asyncio.to_thread(build_forest, edges.span_id, edges.parent_span_id)
    rows = _children(forest, query.parent, trace=trace)
    listing = listing_of(request, query)
    after = listing.begin(CHILD_KEY)
    keys: list[Key] = [(edges.start_ns[row], edges.span_id[row]) for row in rows]
    begin = 0 if after is None else next((place for place, one in enumerate(keys) if one > after), len(keys))
    shown = rows[begin : begin + query.limit]
    last = keys[begin + len(shown) - 1] if begin + len(shown) < len(rows) else None
    items = await _span_items(store, key, trace=ids, forest=forest, rows=shown, span_ids=edges.span_id)
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("spans",))]
    page = Page(items, len(rows), listing.cursor(last), warnings=forest.warnings(), gaps=gaps)
    return json_answer({**page.as_json(), "spans": forest.size})


def _children(forest: Forest, parent: str | None, *, trace: str) -> Sequence[int]:
    if parent is None:
        return forest.roots
    row = forest.position.get(int(parent, 16))
    if row is None:
        raise NotFoundError(
            f"no span {parent.lower()!r} in trace {trace.lower()!r}",
            hint="leave `parent` out for the roots of the trace",
            code="unknown_span",
        )
    return forest.children.get(row, ())


async def _span_items(
    store: TraceStore,
    key: RunKey,
    *,
    trace: tuple[int, int],
    forest: Forest,
    rows: Sequence[int],
    span_ids: Sequence[int],
) -> list[dict[str, Json]]:
    if not rows:
        return []
    records = {
        record["span_id"]: record
        for record in await store.spans.spans(key, trace, span_ids=[span_ids[row] for row in rows])
    }
    return [
        {
            **span_json(records[span_ids[row]]),
            "child_count": len(forest.children.get(row, ())),
            "orphan": row in forest.orphans,
            "cycle_cut": row in forest.cycles_cut,
        }
        for row in rows
        if span_ids[row] in records
    ]
