"""Traces by step, to be looked at beside a metric of the same steps."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field, model_validator

from rankscope_query_api.answers import Json, Page, json_answer, moment
from rankscope_query_api.errors import unknown
from rankscope_query_api.places import StepBucket, StepWindow
from rankscope_query_api.routes.asking import MAX_STEP, PREFIX, Paged, Run, launches_of, refuse_swapped, store_of
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.store import TraceStore
from rankscope_query_api.summaries import whole
from rankscope_query_api.values import Record, RunKey

router = APIRouter(prefix=PREFIX, tags=["traces"])

BUCKET_KEY = (int,)
"""Shape of the key of the list of buckets: the step."""


class TraceStepsQuery(Paged):
    """Which steps, and which metric beside them."""

    limit: int = Field(default=1000, ge=1, le=10_000, description="Most steps in the answer.")
    min_step: int = Field(default=-MAX_STEP, ge=-MAX_STEP, le=MAX_STEP, description="Least step.")
    max_step: int = Field(default=MAX_STEP, ge=-MAX_STEP, le=MAX_STEP, description="Greatest step.")
    metric: str = Field(
        default="", max_length=512, description="Name of a metric of the run: its points are beside the traces."
    )

    @model_validator(mode="after")
    def _ascending(self) -> "TraceStepsQuery":
        refuse_swapped(min_step=self.min_step, max_step=self.max_step)
        return self


@router.get("/runs/{run}/traces/steps")
async def list_trace_steps(request: Request, run: Run, *, query: Annotated[TraceStepsQuery, Query()]) -> Response:
    """Lists the steps at which traces begin, with what these come to, and the points of a metric at each.

    A trace is counted at its least step. Traces without a step are in no bucket; `traces` counts them all, whatever
    the steps that are asked for.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    await launches_of(store, key)
    if query.metric:
        await _known_metric(store, key, name=query.metric)
    listing = listing_of(request, query)
    after = listing.begin(BUCKET_KEY)
    window = StepWindow(query.min_step, query.max_step)
    found, count, gaps = await asyncio.gather(
        store.trace_steps.buckets(
            key, window, metric=query.metric, limit=query.limit, after=None if after is None else int(after[0])
        ),
        store.trace_steps.count(key),
        store.runs.gaps(key, sections=("spans",)),
    )
    page = Page(
        items=[_bucket_json(bucket, metric=query.metric) for bucket in found.items],
        total=found.total,
        next=listing.cursor(found.next),
        gaps=[gap_json(gap) for gap in gaps],
    )
    totals: dict[str, Json] = {"traces": count.total, "stepless_traces": count.stepless, "error_traces": count.failed}
    return json_answer({**page.as_json(), **totals})


async def _known_metric(store: TraceStore, key: RunKey, *, name: str) -> None:
    known = [record["name"] for record in await store.runs.metric_names(key)]
    if name not in known:
        raise unknown("metric", name, project=key.project, known=known, lister=f"GET {PREFIX}/runs/{key.run}/metrics")


def _bucket_json(bucket: StepBucket, *, metric: str) -> dict[str, Json]:
    traces = bucket.traces or _NO_TRACES
    shown: dict[str, Json] = {
        "step": bucket.step,
        "traces": traces["traces"],
        "step_traces": traces["step_traces"],
        "error_traces": traces["error_traces"],
        "running_traces": bucket.running,
        "spans": traces["spans"],
        "errors": traces["errors"],
        "mean_duration_ns": traces["mean_ns"],
        "max_duration_ns": traces["max_ns"],
        "input_tokens": whole(traces["input_tokens"]),
        "output_tokens": whole(traces["output_tokens"]),
        "cost_usd": traces["cost_usd"],
        **moment("first_start", traces["first_started_ns"]),
        **moment("last_start", traces["last_started_ns"]),
    }
    if metric:
        shown["metric"] = bucket.points
    return shown


_NO_TRACES: Record = {
    **dict.fromkeys(("traces", "step_traces", "error_traces", "spans", "errors"), 0),
    **dict.fromkeys(("mean_ns", "max_ns", "input_tokens", "output_tokens", "cost_usd")),
    **dict.fromkeys(("first_started_ns", "last_started_ns")),
}
"""What is said of a step at which no trace begins."""
