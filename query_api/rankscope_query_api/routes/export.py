"""Finished spans as JSON lines: of a run, or of one trace, streamed a page at a time."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field, model_validator

from rankscope_query_api.answers import conventional
from rankscope_query_api.places import StepWindow, TracePlace
from rankscope_query_api.routes.asking import (
    MAX_STEP,
    PREFIX,
    InProject,
    Run,
    TraceId,
    headed,
    is_head,
    launches_of,
    refuse_swapped,
    store_of,
)
from rankscope_query_api.routes.one_trace import trace_of
from rankscope_query_api.routes.records import span_event_json, span_json
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import Record, RunKey

router = APIRouter(prefix=PREFIX, tags=["traces"])

SPANS_A_PAGE = 500
"""What is held at a time: 500 spans of at most 12 KiB of previews and 48 KiB of labels each."""

JSON_LINES = "application/x-ndjson"


class ExportQuery(InProject):
    """Which steps."""

    min_step: int = Field(default=-MAX_STEP, ge=-MAX_STEP, le=MAX_STEP, description="Least step; -1: spans without.")
    max_step: int = Field(default=MAX_STEP, ge=-MAX_STEP, le=MAX_STEP, description="Greatest step.")

    @model_validator(mode="after")
    def _ascending(self) -> "ExportQuery":
        refuse_swapped(min_step=self.min_step, max_step=self.max_step)
        return self


@router.get("/runs/{run}/traces/export", response_class=StreamingResponse)
async def export_traces(request: Request, run: Run, *, query: Annotated[ExportQuery, Query()]) -> Response:
    """Streams all finished spans of a run as JSON lines, by (step, rank, start), each with its events.

    A stream that breaks off ends without its last chunk, which HTTP clients report as an error.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    return await _streamed(request, Exported(store, key, StepWindow(query.min_step, query.max_step)), name=run)


@router.get("/runs/{run}/traces/{trace}/export", response_class=StreamingResponse)
async def export_trace(request: Request, run: Run, trace: TraceId, *, query: Annotated[InProject, Query()]) -> Response:
    """Streams all finished spans of a trace as JSON lines, by (step, rank, start), each with its events."""
    store = store_of(request)
    key = RunKey(query.project, run)
    found = await trace_of(store, key, trace=trace)
    return await _streamed(request, Exported(store, key, found.place), name=trace.lower())


async def _streamed(request: Request, exported: "Exported", *, name: str) -> Response:
    # Read before the status is sent: a store that does not answer is told with a 503, not with an empty file.
    first = await exported.page(after=None)
    safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "_" for letter in name)
    headers = {"content-disposition": f'attachment; filename="{safe}.jsonl"'}
    if is_head(request):
        return headed(JSON_LINES, headers)
    return StreamingResponse(exported.lines(first), media_type=JSON_LINES, headers=headers)


@dataclass(frozen=True, slots=True)
class Exported:
    """What is exported.

    Attributes:
        store: What it is read from.
        key: The run.
        of: Its steps, or its trace.
    """

    store: TraceStore
    key: RunKey
    of: StepWindow | TracePlace

    async def page(self, *, after: Record | None) -> Sequence[Record]:
        """The spans behind one."""
        return await self.store.export.spans(self.key, self.of, limit=SPANS_A_PAGE, after=after)

    async def lines(self, first: Sequence[Record]) -> AsyncIterator[bytes]:
        """The spans as JSON lines, a page at a time, from the first page on."""
        page = first
        while page:
            happened: defaultdict[tuple[int, int, int], list[Record]] = defaultdict(list)
            for event in await self.store.export.events(self.key, page):
                happened[_ids(event)].append(event)
            yield b"".join(_line(self.key, span, events=happened[_ids(span)]) for span in _each_once(page))
            page = await self.page(after=page[-1]) if len(page) == SPANS_A_PAGE else ()


def _each_once(page: Sequence[Record]) -> Iterator[Record]:
    before: Record | None = None
    for span in page:
        if before is None or (_ids(span), span["start"]) != (_ids(before), before["start"]):
            yield span
        before = span


def _line(key: RunKey, span: Record, *, events: Sequence[Record]) -> bytes:
    shown = {"run_id": key.run, **span_json(span), "events": [span_event_json(event) for event in events]}
    return orjson.dumps(conventional(shown), option=orjson.OPT_APPEND_NEWLINE)


def _ids(row: Record) -> tuple[int, int, int]:
    return row["trace_hi"], row["trace_lo"], row["span_id"]
