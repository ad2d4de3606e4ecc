"""Collectives as ranks sent them, with what told each time."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_proto.names import COLLECTIVE_FLAGS, Phase
from rankscope_query_api.answers import Json, Page, json_answer, moment
from rankscope_query_api.meetings import CollectiveFilter
from rankscope_query_api.rank_store import COLLECTIVE_KEY
from rankscope_query_api.routes.asking import MAX_STEP, PREFIX, Paged, Run, launch_named, launches_of, store_of
from rankscope_query_api.routes.paging import listing_of
from rankscope_query_api.routes.records import flag_names, gap_json
from rankscope_query_api.values import Record, RunKey

router = APIRouter(prefix=PREFIX, tags=["steps"])


class CollectivesQuery(Paged):
    """Which rows."""

    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: all.")
    step: int | None = Field(default=None, ge=0, le=MAX_STEP, description="Optimizer step.")
    group: str | None = Field(default=None, max_length=4096, description="Name of the process group.")
    seq: int | None = Field(default=None, ge=0, le=2**63 - 1, description="Number of the collective in its group.")
    rank: int | None = Field(default=None, ge=-1, le=2**31 - 1, description="Global rank.")


@router.get("/runs/{run}/collectives")
async def list_collectives(request: Request, run: Run, *, query: Annotated[CollectivesQuery, Query()]) -> Response:
    """Lists what each rank said of each collective, by (step, group, number, rank): the rows of one are neighbours.

    Times are the rank's own clock's, as they were recorded; `entry_source` and `exit_source` say what told them. Where
    `flags` has `enqueued`, they are times of putting work into a device's queue.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    launch = None if query.launch is None else launch_named(launches, query.launch, among=())
    where = CollectiveFilter(launch and launch.launch_id, query.step, query.group, query.seq, query.rank)
    listing = listing_of(request, query)
    begin = listing.begin(COLLECTIVE_KEY)
    found = await store.collectives.collectives(key, where, limit=query.limit, after=begin)
    gaps = [gap_json(gap) for gap in await store.runs.gaps(key, sections=("collectives",), step=query.step)]
    items = [_collective_json(row) for row in found.items]
    return json_answer(Page(items, found.total, listing.cursor(found.next), gaps=gaps).as_json())


def _collective_json(row: Record) -> dict[str, Json]:
    took = None if row["exit"] is None else row["exit"] - row["entry"]
    return {
        "launch_id": row["launch"],
        "rank": row["rank"],
        "node": row["node"],
        "step": row["step"],
        "microstep": row["microstep"],
        "phase": Phase.of(row["phase"]),
        "group": row["group"],
        "group_ranks": row["group_ranks"],
        "seq": row["cseq"],
        "op": row["op"],
        **moment("entry", row["entry"]),
        **moment("exit", row["exit"]),
        "duration_ns": took,
        "device_ns": row["device"],
        "entry_source": row["entry_source"],
        "exit_source": row["exit_source"],
        "bytes": row["bytes"],
        "dtype": row["dtype"],
        "shape": row["shape"],
        "reduction": row["reduction"],
        "module": row["module"],
        "flags": flag_names(row["flags"], COLLECTIVE_FLAGS),
    }
