"""Who makes the others wait, by how much and why: charged collective by collective."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field, model_validator

from rankscope_query_api.answers import Json, json_answer
from rankscope_query_api.findings import Straggler, find_straggler
from rankscope_query_api.meetings import Meeting, Window
from rankscope_query_api.ranks.charges import CAUSES, Charge
from rankscope_query_api.ranks.matching import ranks_named
from rankscope_query_api.ranks.stragglers import Recurrence
from rankscope_query_api.routes.asking import (
    MAX_STEP,
    PREFIX,
    InProject,
    Run,
    launch_named,
    launches_of,
    refuse_swapped,
    store_of,
)
from rankscope_query_api.routes.clocks import clock_json
from rankscope_query_api.routes.records import gap_json
from rankscope_query_api.routes.waits import (
    MOST_ARRIVALS,
    MOST_MATCHES,
    MOST_STEPS,
    MOST_UNMATCHED,
    Key,
    Steps,
    Waits,
    waits_of,
)
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["findings"])

_WORST = 3
"""Collectives shown beside each charge."""

_PHASE_CELLS = 200_000
"""Most (step, rank) pairs of which phases are read."""

_SECTIONS = ("collectives", "clocks", "spans")
_WHY = {
    "incomplete": "not all ranks of the group are known to have come",
    "duplicate": "a rank came twice: two processes had it",
    "op": "the ranks called different operations",
    "size": "the ranks came with different sizes",
}


class StragglersQuery(InProject):
    """Which steps of which launch, and what waits are counted for."""

    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: the latest.")
    first: int | None = Field(
        default=None, alias="from", ge=0, le=MAX_STEP, description="First step; left out: behind those of warming up."
    )
    last: int | None = Field(default=None, alias="to", ge=0, le=MAX_STEP, description="Last step.")
    by: str = Field(
        default="rank", max_length=256, pattern="^(rank|node|mesh[.].+)$", description="rank, node or mesh.AXIS."
    )
    limit: int = Field(default=20, ge=1, le=1000, description="Most of those who are charged that are shown.")

    @model_validator(mode="after")
    def _ordered(self) -> "StragglersQuery":
        refuse_swapped(**{"from": self.first, "to": self.last})
        return self


@router.get("/runs/{run}/stragglers")
async def list_stragglers(request: Request, run: Run, *, query: Annotated[StragglersQuery, Query()]) -> Response:
    """Lists who made the others wait, the most first: last at a matched collective, and by its own doing.

    The last to come is charged with the others' waits (`charged_ns`, a sum over them), without what it had received
    from the collective before (`received_ns`), and only where it came later than any other by more than the clocks
    may err; all else is `uncertain_ns`. `is_straggler`: charged nearly always, in each or in every k-th step, until the
    last one, far above the noise. Without collectives (`judged_by` is `phases`) the phases of steps are judged.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    have = [one.launch_id for one in launches if one.rows.get("collectives", 0)]
    launch = launch_named(launches, query.launch, among=have or [one.launch_id for one in launches])
    launch_id = launch.launch_id if launch else ""
    waits = await waits_of(store, key, launch=launch_id, steps=Steps(query.first, query.last, query.by))
    judged = (
        _judged(waits, waits.window, limit=query.limit)
        if waits.window
        else await _by_phases(store, key, launch=launch_id, query=query)
    )
    holders = await store.clocks.holders(key, launch_id)
    gaps = await store.runs.gaps(key, sections=_SECTIONS)
    return json_answer(
        {
            "run_id": run,
            "launch_id": launch_id,
            "by": query.by,
            **judged,
            "clock": clock_json(waits.correction, holders, last_ns=waits.last_ns),
            "warnings": _warnings(waits),
            "gaps": [gap_json(gap) for gap in gaps],
        }
    )


def _judged(waits: Waits, window: Window, *, limit: int) -> dict[str, Json]:
    found = waits.account
    charged: defaultdict[int, list[Charge]] = defaultdict(list)
    for charge in found.charges:
        if charge.wait_ns > 0:
            charged[charge.meeting.key].append(charge)
    total = found.total_ns
    order = sorted(charged, key=lambda key: (key not in waits.stragglers, -_sum(charged[key]), key))
    return {
        "judged_by": "collectives",
        "judged_steps": {"from": window.first, "to": window.last} if waits.reached else None,
        "collectives": len(waits.meetings),
        "total_wait_ns": total,
        "charged_ns": sum(charge.wait_ns for charge in found.charges),
        "received_ns": found.received_ns,
        "uncertain_ns": found.uncertain_ns,
        "transfer_ns": found.transfer_ns,
        "uncharged": {str(reason): count for reason, count in found.reasons.items()},
        "items": [
            _item(waits.keys[key], charged[key], recurrence=waits.stragglers.get(key), total=total)
            for key in order[:limit]
        ],
        "total": len(order),
        "truncated": len(order) > limit,
        "worst_transfers": _transfers(waits.meetings),
        "unmatched": [
            _unmatched(waits, meeting, reason=reason) for meeting, reason in found.unmatched[:MOST_UNMATCHED]
        ],
    }


def _sum(charges: Sequence[Charge]) -> int:
    return sum(charge.wait_ns for charge in charges)


def _item(key: Key, charges: Sequence[Charge], *, recurrence: Recurrence | None, total: int) -> dict[str, Json]:
    charged = _sum(charges)
    causes = {cause: sum(charge.causes.get(cause, 0) for charge in charges) for cause in CAUSES}
    worst = sorted(charges, key=lambda charge: -charge.wait_ns)[:_WORST]
    nodes = {member.node for member in key.members}
    return {
        "name": key.name,
        "rank": key.ranks[0] if len(key.ranks) == 1 else None,
        "ranks": key.ranks,
        "node": nodes.pop() if len(nodes) == 1 else None,
        "charged_ns": charged,
        "share": charged / total if total else 0.0,
        "steps": len({charge.meeting.step for charge in charges}),
        "causes": [
            {"cause": cause, "wait_ns": causes[cause]}
            for cause in sorted(causes, key=lambda cause: -causes[cause])
            if causes[cause]
        ],
        **_recurrence_json(recurrence),
        "worst": [{**_place(charge.meeting), "wait_ns": charge.wait_ns} for charge in worst],
    }


def _recurrence_json(found: Recurrence | None) -> dict[str, Json]:
    if found is None:
        names = ("every", "since_step", "recurred", "hits", "lost_ns", "share_of_step", "confidence", "cause")
        return {"is_straggler": False, **dict.fromkeys(names)}
    return {
        "is_straggler": True,
        "every": found.every,
        "since_step": found.since_step,
        "recurred": found.steps,
        "hits": found.hits,
        "lost_ns": found.lost_ns,
        "share_of_step": found.share,
        "confidence": found.confidence,
        "cause": found.cause,
    }


def _place(meeting: Meeting) -> dict[str, Json]:
    return {"step": meeting.step, "group": meeting.group, "seq": meeting.cseq, "op": meeting.op}


def _transfers(meetings: Sequence[Meeting]) -> list[Json]:
    """The collectives that took the longest themselves, beyond what their kind in their group takes usually."""
    kinds: defaultdict[tuple[str, str], list[Meeting]] = defaultdict(list)
    for meeting in meetings:
        if meeting.transfer_ns >= 0:
            kinds[meeting.group, meeting.op].append(meeting)
    usual = {kind: round(median(one.transfer_ns for one in found)) for kind, found in kinds.items()}
    every = [one for found in kinds.values() for one in found]
    worst = sorted(every, key=lambda one: usual[one.group, one.op] - one.transfer_ns)[:_WORST]
    return [{**_place(one), "transfer_ns": one.transfer_ns, "usual_ns": usual[one.group, one.op]} for one in worst]


def _unmatched(waits: Waits, meeting: Meeting, *, reason: str) -> dict[str, Json]:
    match = waits.matches.get((meeting.group, meeting.group_ranks, meeting.cseq))
    here = sorted({one.rank for one in match.arrivals}) if match else []
    return {
        **_place(meeting),
        "reason": reason,
        "detail": _WHY[reason],
        "group_ranks": ranks_named(meeting.group_ranks),
        "arrived": here,
        "missing_ranks": match.missing if match else [],
        "ops": sorted({one.op for one in match.arrivals}) if match else [meeting.op],
    }


async def _by_phases(store: TraceStore, key: RunKey, *, launch: str, query: StragglersQuery) -> dict[str, Any]:
    """What phases of steps say where there are no collectives: an estimate, of one rank, in each step."""
    times = await store.spans.step_times(key, launch, steps=MOST_STEPS, cells=_PHASE_CELLS)
    last = MAX_STEP if query.last is None else query.last
    wanted = [one for one in times if (query.first or 0) <= one.step <= last] if query.by == "rank" else []
    straggler = await asyncio.to_thread(find_straggler, wanted)
    return {
        "judged_by": "phases" if wanted else "nothing",
        "judged_steps": {"from": wanted[0].step, "to": wanted[-1].step} if wanted else None,
        "collectives": 0,
        **dict.fromkeys(("total_wait_ns", "charged_ns", "received_ns", "uncertain_ns", "transfer_ns")),
        "uncharged": {},
        "items": [_estimated(straggler)] if straggler else [],
        "total": 1 if straggler else 0,
        "truncated": False,
        "worst_transfers": [],
        "unmatched": [],
    }


def _estimated(straggler: Straggler) -> dict[str, Json]:
    return {
        "name": str(straggler.rank),
        "rank": straggler.rank,
        "ranks": [straggler.rank],
        "node": None,
        "charged_ns": None,
        "share": None,
        "steps": straggler.charged_steps,
        "causes": [{"cause": straggler.phase, "wait_ns": None}],
        "is_straggler": True,
        "every": 1,
        "since_step": straggler.since_step,
        "recurred": straggler.steps,
        "hits": straggler.charged_steps,
        "lost_ns": straggler.lost_ns,
        "share_of_step": straggler.share,
        "confidence": None,
        "cause": straggler.phase,
        "worst": [],
    }


def _warnings(waits: Waits) -> list[str]:
    found, reasons = list[str](), waits.account.reasons
    if waits.window is None:
        return ["the launch has no collectives in these steps: the phases of its steps are judged, where it has them"]
    if waits.is_cut:
        found.append(
            f"only the latest steps are judged: no more than {MOST_STEPS:,}, with {MOST_ARRIVALS:,} rows and "
            f"{MOST_MATCHES:,} collectives"
        )
    if reasons.get("unmeasured"):
        found.append(
            f"of {reasons['unmeasured']} collectives nobody is charged: not every rank's clock was measured, and what "
            "is known of the waits comes from how long each rank stayed"
        )
    if enqueued := sum(one.enqueued for one in waits.reached):
        found.append(f"{enqueued} arrivals are times of putting work into a device's queue, not of the device")
    if unknown := {one.group for one in waits.meetings if not one.group_ranks}:
        found.append(f"the ranks of {len(unknown)} groups are not known, so nobody is charged at their collectives")
    return found
