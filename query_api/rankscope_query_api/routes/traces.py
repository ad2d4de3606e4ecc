"""Traces and their spans: lists with filters, and children as they are opened."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field, field_validator

from rankscope_proto.names import SpanKind, SpanStatus
from rankscope_query_api.answers import Json, Key, Page, json_answer, moment
from rankscope_query_api.errors import NotFoundError, unknown
from rankscope_query_api.routes.asking import MAX_STEP, PREFIX, Paged, Run, TraceId, code_named, launches_of, store_of
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import gap_json, span_json, trace_hex
from rankscope_query_api.store import TRACE_KEY, TraceStore
from rankscope_query_api.trees import Forest, build_forest
from rankscope_query_api.values import Record, RunKey, SpanFilter

router = APIRouter(prefix=PREFIX, tags=["traces"])

KINDS = [kind.value for kind in SpanKind]
STATUSES = [status.value for status in SpanStatus]
CHILD_KEY = (int, int)
"""Shape of the key of a list of children: (start, span id)."""


class TraceQuery(Paged):
    """Which traces: those with a span that is as all of these say."""

    kind: str | None = Field(default=None, description=f"Kind of a span: {', '.join(KINDS)}.")
    status: str | None = Field(default=None, description=f"Status of that span: {', '.join(STATUSES)}.")
    step: int | None = Field(default=None, ge=0, le=MAX_STEP, description="Its step or episode.")
    rank: int | None = Field(default=None, ge=-1, le=2**31 - 1, description="Its rank.")
    q: str | None = Field(
        default=None,
        max_length=1024,
        description="Up to 8 words; each occurs, whatever its case, in a name, label or preview of the span.",
    )

    @field_validator("q")
    @classmethod
    def _few_words(cls, words: str | None) -> str | None:
        if words is not None and len(words.split()) > 8:
            raise ValueError(f"at most 8 words are searched for, and these are {len(words.split())}")
        return words


class ChildQuery(Paged):
    """Whose children."""

    parent: str | None = Field(
        default=None, pattern="^[0-9a-fA-F]{16}$", description="Span id, 16 hex digits; left out: the roots."
    )


@router.get("/runs/{run}/traces")
async def list_traces(request: Request, run: Run, *, query: Annotated[TraceQuery, Query()]) -> Response:
    """Lists traces, the latest first, with their root and their counts."""
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    where = SpanFilter(
        kind=code_named(KINDS, query.kind, parameter="kind"),
        status=code_named(STATUSES, query.status, parameter="status"),
        step=query.step,
        rank=query.rank,
        terms=(query.q or "").split(),
    )
    listing = listing_of(request, query)
    found = await store.spans.traces(key, where, limit=query.limit, after=listing.begin(TRACE_KEY))
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("spans",), step=query.step)]
    items = [_trace_json(trace) for trace in found.items]
    return json_answer(Page(items, found.total, listing.cursor(found.next), gaps=gaps).as_json())


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


def _trace_json(trace: Record) -> dict[str, Json]:
    steps = trace["steps"]
    return {
        "trace_id": trace_hex(trace["trace_hi"], trace["trace_lo"]),
        "name": trace["root_name"],
        "kind": SpanKind.of(trace["root_kind"]),
        "status": SpanStatus.ERROR.value if trace["errors"] else SpanStatus.of(trace["root_status"]),
        "is_step": bool(trace["is_step"]),
        "steps": steps,
        "ranks": trace["ranks"],
        "spans": trace["spans"],
        "errors": trace["errors"],
        **moment("start", trace["started_ns"]),
        "duration_ns": trace["duration_ns"],
    }
