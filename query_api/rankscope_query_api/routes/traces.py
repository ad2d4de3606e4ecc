"""The list of traces: filters, search, pages."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field, field_validator

from rankscope_proto.names import SpanKind, SpanStatus
from rankscope_query_api.answers import Json, Page, json_answer
from rankscope_query_api.routes.asking import MAX_STEP, PREFIX, Paged, Run, code_named, launches_of, store_of
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import gap_json, trace_hex
from rankscope_query_api.store import TRACE_KEY
from rankscope_query_api.summaries import summary_json
from rankscope_query_api.values import Record, RunKey, SpanFilter

router = APIRouter(prefix=PREFIX, tags=["traces"])

KINDS = [kind.value for kind in SpanKind]
STATUSES = [status.value for status in SpanStatus]


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
    found = await store.traces.traces(key, where, limit=query.limit, after=listing.begin(TRACE_KEY))
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("spans",), step=query.step)]
    items = [_trace_json(trace) for trace in found.items]
    return json_answer(Page(items, found.total, listing.cursor(found.next), gaps=gaps).as_json())


def _trace_json(trace: Record) -> dict[str, Json]:
    return {
        "trace_id": trace_hex(trace["trace_hi"], trace["trace_lo"]),
        **summary_json({**trace, "running": 0}),
        "steps": trace["steps"],
    }
