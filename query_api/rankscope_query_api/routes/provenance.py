"""Where the first non-finite value of a run came from."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_query_api.answers import json_answer
from rankscope_query_api.routes.asking import MAX_STEP, PREFIX, InProject, Run, launch_named, launches_of, store_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.rules.spreading import provenance_json, traced
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["findings"])


class ProvenanceQuery(InProject):
    """Which launch, from which step on."""

    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: the latest.")
    step: int | None = Field(
        default=None, ge=0, le=MAX_STEP, description="Values of earlier steps are passed over; left out: none are."
    )


@router.get("/runs/{run}/provenance")
async def show_provenance(request: Request, run: Run, *, query: Annotated[ProvenanceQuery, Query()]) -> Response:
    """Shows the earliest non-finite tensor whose inputs were finite, and how the other ranks came by theirs.

    Ranks are ordered by what each saw one after the other and by matched collectives, never by clocks: `received` are
    those whose first non-finite tensor came after a collective (`via`; null: after a reduction of which no row is
    there) that another rank had entered with one. Where nothing orders two of them, `origin` is null and both are
    `undecided`. Steps that a loss scaler skipped are passed over.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    launch = launch_named(launches, query.launch, among=[one.launch_id for one in launches])
    launch_id = launch.launch_id if launch is not None else ""
    found = await traced(store, key, launch=launch_id, first_step=-1 if query.step is None else query.step)
    gaps = await store.runs.gaps(key, sections=("tensor_stats", "collectives"))
    return json_answer(
        {"run_id": run, "launch_id": launch_id, **provenance_json(found), "gaps": [gap_json(gap) for gap in gaps]}
    )
