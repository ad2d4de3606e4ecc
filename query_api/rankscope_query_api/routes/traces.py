"""The lists of traces, of a run and of a project: filters, search, pages."""

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field, field_validator, model_validator

from rankscope_proto.names import SpanKind
from rankscope_query_api.answers import Json, Page, json_answer, moment, moment_ns
from rankscope_query_api.routes.asking import (
    MAX_STEP,
    PREFIX,
    Paged,
    Run,
    code_named,
    launches_of,
    refuse_swapped,
    store_of,
    word_named,
)
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import gap_json, trace_json
from rankscope_query_api.summaries import STATUSES
from rankscope_query_api.trace_store import TRACE_KEY
from rankscope_query_api.values import RunKey, TraceFilter, TraceScope

router = APIRouter(prefix=PREFIX, tags=["traces"])

KINDS = [kind.value for kind in SpanKind]

ANY = "all"
"""A kind or status that does not restrict."""

MOST_TERMS = 8
MOST_ATTRIBUTES = 8

RECENT_NS = 7 * 86_400 * 10**9
"""How far back a project's list goes where neither `from` nor a run is named."""

_MINUTE_NS = 60 * 10**9
_MS = 10**6

Text = Annotated[str | None, Field(max_length=512)]
Time = Annotated[str | None, Field(max_length=64)]


class TraceQuery(Paged):
    """Which traces: those with one span that is as all of the first say, and that are as all others say."""

    kind: str | None = Field(default=None, description=f"Kind of the span: {', '.join(KINDS)}; or all.")
    name: Text = Field(default=None, description="Name of the span, exactly.")
    rank: int | None = Field(default=None, ge=-1, le=2**31 - 1, description="Rank of the span.")
    step: int | None = Field(default=None, ge=0, le=MAX_STEP, description="Step or episode of the span.")
    min_step: int | None = Field(default=None, ge=-MAX_STEP, le=MAX_STEP, description="Least step of the span.")
    max_step: int | None = Field(default=None, ge=-MAX_STEP, le=MAX_STEP, description="Greatest step of the span.")
    error_type: Text = Field(default=None, description="Class of the exception that ended the span.")
    attribute: list[Annotated[str, Field(max_length=1024)]] = Field(
        default=[],
        max_length=MOST_ATTRIBUTES,
        description="An attribute of the span, as key=value; given several times: all of them.",
    )
    status: str | None = Field(default=None, description=f"Status of the trace: {', '.join(STATUSES)}; or all.")
    min_duration_ms: float | None = Field(default=None, ge=0, le=1e12, description="Least duration of the trace.")
    max_duration_ms: float | None = Field(default=None, ge=0, le=1e12, description="Greatest duration of the trace.")
    since: Time = Field(
        default=None, alias="from", description="Least start of the trace: ISO-8601, or ns since the epoch."
    )
    until: Time = Field(default=None, alias="to", description="Start of the trace, exclusive.")
    q: str | None = Field(
        default=None,
        max_length=1024,
        description=f"Up to {MOST_TERMS} words. Each occurs, whatever its case, in some span's name, thread, rollout, "
        "attribute values, error type or previews, or, from 4 hex digits on, in the id of the trace or a span.",
    )

    @field_validator("q")
    @classmethod
    def _few_words(cls, words: str | None) -> str | None:
        if words is not None and len(words.split()) > MOST_TERMS:
            raise ValueError(f"at most {MOST_TERMS} words are searched for, and these are {len(words.split())}")
        return words

    @field_validator("attribute")
    @classmethod
    def _pairs(cls, attributes: list[str]) -> list[str]:
        for pair in attributes:
            if pair.find("=") < 1:
                raise ValueError(f"{pair!r} is not of the form key=value")
        return attributes

    @field_validator("since", "until")
    @classmethod
    def _times(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                moment_ns(text)
            except ValueError as error:
                raise ValueError(f"{text!r} is no time, as 2026-11-29T18:21:53Z is ({error})") from error
        return text

    @model_validator(mode="after")
    def _ascending(self) -> "TraceQuery":
        refuse_swapped(min_step=self.min_step, max_step=self.max_step)
        refuse_swapped(min_duration_ms=self.min_duration_ms, max_duration_ms=self.max_duration_ms)
        if self.step is not None and (self.min_step is not None or self.max_step is not None):
            raise ValueError("step names one step: leave min_step and max_step out")
        if self.since is not None and self.until is not None and moment_ns(self.until) <= moment_ns(self.since):
            raise ValueError(f"to must be after from, and {self.until} is not after {self.since}")
        return self


class ProjectTraceQuery(TraceQuery):
    """The same, of all runs of a project or of one."""

    run: Text = Field(default=None, min_length=1, description="Only traces of this run.")


@router.get("/runs/{run}/traces")
async def list_traces(request: Request, run: Run, *, query: Annotated[TraceQuery, Query()]) -> Response:
    """Lists the traces of a run, the latest first, with what their spans come to."""
    store = store_of(request)
    key = RunKey(query.project, run)
    answer, gaps = await asyncio.gather(
        _listed(request, query, run=run), store.runs.gaps(key, sections=("spans",), step=query.step)
    )
    if not answer["total"]:  # a run with traces is there: most lists do not ask
        await launches_of(store, key)
    return json_answer({**answer, "gaps": [gap_json(gap) for gap in gaps]})


@router.get("/traces")
async def list_project_traces(request: Request, *, query: Annotated[ProjectTraceQuery, Query()]) -> Response:
    """Lists the traces of a project, the latest first; where neither `from` nor `run` is named, of the last 7 days.

    What is missing of a run's traces is stated with the run's own list.
    """
    return json_answer(await _listed(request, query, run=query.run))


async def _listed(request: Request, query: TraceQuery, *, run: str | None) -> dict[str, Json]:
    where = _filter_of(query, is_recent=run is None)
    listing = listing_of(request, query)
    after = listing.begin(TRACE_KEY)
    found = await store_of(request).traces.traces(TraceScope(query.project, run), where, limit=query.limit, after=after)
    page = Page([trace_json(trace) for trace in found.items], found.total, listing.cursor(found.next))
    return {**page.as_json(), **moment("from", where.since_ns), **moment("to", where.until_ns)}


def _filter_of(query: TraceQuery, *, is_recent: bool) -> TraceFilter:
    until = None if query.until is None else moment_ns(query.until)
    since = None if query.since is None else moment_ns(query.since)
    if since is None and is_recent:
        # Whole minutes, so that the same list is asked for again within one.
        since = (time.time_ns() if until is None else until) // _MINUTE_NS * _MINUTE_NS - RECENT_NS
    return TraceFilter(
        kind=code_named((*KINDS, ANY), _restricting(query.kind), parameter="kind"),
        name=query.name,
        rank=query.rank,
        first_step=query.min_step if query.step is None else query.step,
        last_step=query.max_step if query.step is None else query.step,
        error_type=query.error_type,
        attributes=[(key, value) for key, _, value in (pair.partition("=") for pair in query.attribute)],
        terms=tuple(dict.fromkeys((query.q or "").split())),
        status=word_named((*STATUSES, ANY), _restricting(query.status), parameter="status"),
        least_ns=None if query.min_duration_ms is None else round(query.min_duration_ms * _MS),
        most_ns=None if query.max_duration_ms is None else round(query.max_duration_ms * _MS),
        since_ns=since,
        until_ns=until,
    )


def _restricting(word: str | None) -> str | None:
    return None if word == ANY else word
