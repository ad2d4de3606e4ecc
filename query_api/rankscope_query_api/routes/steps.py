"""The steps of a run."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_proto.identity import step_trace_id
from rankscope_query_api.answers import Json, Page, json_answer, moment
from rankscope_query_api.routes.asking import PREFIX, Paged, Run, launch_named, launches_of, store_of
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import gap_json, trace_hex
from rankscope_query_api.store import STEP_KEY
from rankscope_query_api.values import Record, RunKey

router = APIRouter(prefix=PREFIX, tags=["steps"])


class StepsQuery(Paged):
    """Of which launch."""

    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: of all.")


@router.get("/runs/{run}/steps")
async def list_steps(request: Request, run: Run, *, query: Annotated[StepsQuery, Query()]) -> Response:
    """Lists the steps with the least, median and greatest duration over the ranks."""
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    launch = launch_named(launches, query.launch, among=()) if query.launch else None
    listing = listing_of(request, query)
    found = await store.spans.steps(
        key, launch=launch and launch.launch_id, limit=query.limit, after=listing.begin(STEP_KEY)
    )
    attempts = {one.launch_id: one.attempt for one in launches}
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("spans",))]
    items = [_step_json(run, record, attempts=attempts) for record in found.items]
    return json_answer(Page(items, found.total, listing.cursor(found.next), gaps=gaps).as_json())


def _step_json(run: str, record: Record, *, attempts: dict[str, int]) -> dict[str, Json]:
    hi, lo = step_trace_id(run, bytes.fromhex(record["launch"]), record["step_of"])
    return {
        "step": record["step_of"],
        "launch_id": record["launch"],
        "attempt": attempts.get(record["launch"], 0),
        "trace_id": trace_hex(hi, lo),
        "ranks": record["ranks"],
        **moment("start", record["started_ns"]),
        "min_ns": record["min_ns"],
        "median_ns": record["median_ns"],
        "max_ns": record["max_ns"],
        "slowest_rank": record["slowest_rank"],
    }
