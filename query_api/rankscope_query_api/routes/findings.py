"""What went wrong in a run, from its data alone: who made the others wait, where the first non-finite value came up."""

import asyncio
from typing import Annotated, cast

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_proto.names import Phase, Role, Severity
from rankscope_query_api.answers import Json, json_answer
from rankscope_query_api.findings import Straggler, find_straggler
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launch_named, launches_of, store_of
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.rules.spreading import traced
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import Record, RunKey

router = APIRouter(prefix=PREFIX, tags=["findings"])

FIRST_NONFINITE = "tensor.nonfinite_count > 0 and tensor.skipped == false | first"
"""A query that finds it, too, where one rank has non-finite values, or the first in the order of steps has."""

_CELLS = 200_000
"""Most (step, rank) pairs that are judged: 2,000 steps of 100 ranks."""

_TENSORS_SHOWN = 200


class FindingsQuery(InProject):
    """Which launch, how far back, and how many of the kept findings."""

    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: the latest.")
    steps: int = Field(default=2000, ge=10, le=100_000, description="Last steps in which a straggler is looked for.")
    limit: int = Field(default=100, ge=1, le=1000, description="Most of the kept findings that are shown.")


@router.get("/runs/{run}/findings")
async def show_findings(request: Request, run: Run, *, query: Annotated[FindingsQuery, Query()]) -> Response:
    """Shows the rank that makes the others wait and the origin of the first non-finite value; null: none.

    A rank's wait is its backward time over the least of all ranks at that step; it is charged to the rank with the
    longest own phases (input, forward, optimizer). A straggler is charged until the last step, above the noise.
    `items` are what rules found and what was kept of it, the latest first: of every launch where none is named.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    launch = launch_named(launches, query.launch, among=[one.launch_id for one in launches])
    launch_id = launch.launch_id if launch else ""
    times = await store.spans.step_times(key, launch_id, steps=query.steps, cells=_CELLS)
    straggler = await asyncio.to_thread(find_straggler, times)
    nonfinite = await _nonfinite(store, key, launch=launch_id)
    gaps = await store.runs.gaps(key, sections=("spans", "tensor_stats"))
    kept = await store.findings.kept(key, launch=launch_id if query.launch else None, limit=query.limit)
    return json_answer(
        {
            "run_id": run,
            "launch_id": launch_id,
            "judged_steps": {"from": times[0].step, "to": times[-1].step} if times else None,
            "straggler": straggler and _straggler_json(straggler),
            "nonfinite": nonfinite,
            "items": [_kept_json(row) for row in kept.items],
            "total": kept.total,
            "returned": len(kept.items),
            "truncated": kept.total > len(kept.items),
            "gaps": [gap_json(gap) for gap in gaps],
        }
    )


async def _nonfinite(store: TraceStore, key: RunKey, *, launch: str) -> dict[str, Json] | None:
    found = await traced(store, key, launch=launch)
    undecided = found.provenance.undecided
    first = found.provenance.origin or min(undecided, key=lambda one: (one.step or 0, one.rank), default=None)
    if first is None:
        return None
    tensors = await store.tensors.nonfinite(
        key, launch, step=-1 if first.step is None else first.step, limit=_TENSORS_SHOWN
    )
    return {
        "rank": first.rank,
        "step": first.step,
        "layer": first.module,
        "launch_id": launch,
        "phase": Phase.of(first.phase),
        "role": Role.of(first.role),
        "name": first.name,
        "is_decided": found.provenance.origin is not None,
        "query": FIRST_NONFINITE,
        "tensors": [_tensor_json(row) for row in tensors.items],
        "tensors_total": tensors.total,
    }


def _kept_json(row: Record) -> dict[str, Json]:
    """A finding as it was told when it was found; what that does not say, as the columns do: anyone may write one."""
    try:
        told = orjson.loads(row["payload"])
    except orjson.JSONDecodeError:
        told = None
    columns: dict[str, Json] = {
        "rule": row["name"],
        "severity": Severity.of(row["severity"]),
        "step": row["step"],
        "sentence": row["payload"],
    }
    own = cast("dict[str, Json]", told) if isinstance(told, dict) else {}
    return {**columns, **own, "id": row["finding_id"]}


def _tensor_json(row: Record) -> dict[str, Json]:
    return {
        "rank": row["rank"],
        "microstep": row["microstep"],
        "phase": Phase.of(row["phase"]),
        "role": Role.of(row["role"]),
        "name": row["name"],
        "module": row["module"],
        "layer_index": row["layer_index"],
        "nonfinite_count": row["nonfinite_count"],
    }


def _straggler_json(straggler: Straggler) -> dict[str, Json]:
    return {
        "rank": straggler.rank,
        "since_step": straggler.since_step,
        "phase": straggler.phase,
        "lost_ns_per_step": str(straggler.lost_ns),
        "share": straggler.share,
        "steps": straggler.steps,
        "evidence": {
            "charged_steps": straggler.charged_steps,
            "excess_ns": straggler.excess_ns,
            "excess_by_phase": [{"phase": phase, "excess_ns": excess} for phase, excess in straggler.phases_ns.items()],
            "wait_by_rank": [{"rank": rank, "wait_ns": wait} for rank, wait in straggler.waits_ns.items()],
        },
    }
