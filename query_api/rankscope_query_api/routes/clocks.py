"""How far apart the clocks of a run's processes are, and how surely that is known."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from rankscope_query_api.answers import Json, json_answer, moment
from rankscope_query_api.clock_reading import ClockHolder, ClockReading
from rankscope_query_api.ranks.bounds import Refined, refined
from rankscope_query_api.ranks.clocks import Correction
from rankscope_query_api.routes.asking import PREFIX, InProject, Run, launch_named, launches_of, store_of
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey

router = APIRouter(prefix=PREFIX, tags=["runs"])

MOST_CLOCKS = 256
"""That are held against each other by collectives; more nodes keep what their agents measured."""

SURE_NS = 10**6
"""Clocks that are known within a millisecond are as sure as collectives could make them, or nearly."""

LAST_STEPS = 20
"""Of a run: their collectives are looked at for contradictions."""

RANKS_NAMED = 20
"""Most ranks that a sentence names."""


class ClocksQuery(InProject):
    """Whose clocks."""

    launch: str | None = Field(default=None, max_length=64, description="Launch id or attempt; left out: the latest.")


@router.get("/runs/{run}/clocks")
async def list_clocks(request: Request, run: Run, *, query: Annotated[ClocksQuery, Query()]) -> Response:
    """Lists how far the clocks of a launch's trainers and their workers were from the server's, and how surely.

    Each is shown as it was measured last. `offset_ns` added to a raw time of the process gives the server's; stored
    times stay raw. Times of processes with one `clock` compare exactly, whatever `error_ns` says. `clock_state` is
    `measured`, `unmeasured`, or `foreign`: held against a server that nothing connects with `server`. What is not
    measured has no order among the others.
    """
    store = store_of(request)
    key = RunKey(query.project, run)
    launches = await launches_of(store, key)
    launch = launch_named(launches, query.launch, among=[one.launch_id for one in launches])
    launch_id = launch.launch_id if launch is not None else ""
    holders = await store.clocks.holders(key, launch_id)
    correction = await correction_of(store, key, launch_id)
    last = await store.runs.last_step(key)
    steps = (max(0, (last or 0) - LAST_STEPS), last or 0)
    held = await _refined(store, key, correction, of=(launch_id, holders), steps=steps)
    return json_answer(
        {
            "run_id": run,
            "launch_id": launch_id,
            **clock_json(correction, holders, last_ns={one.incarnation: one.heard_ns for one in holders}),
            "servers": sorted({one.server for one in correction.readings}),
            "warnings": [*_warnings(correction, holders), *_contradictions(held, holders)],
            "items": _items(correction, holders),
        }
    )


async def correction_of(
    store: TraceStore,
    key: RunKey,
    launch: str | None,
    /,
    *,
    between: tuple[int, int] | None = None,
    steps: tuple[int, int] | None = None,
) -> Correction:
    """What puts a launch's times on one clock.

    Args:
        store: What it is read from.
        key: The run.
        launch: Launch id; None: all launches of the run.
        between: First and last raw time, ns since the epoch, that it is asked about; None: any.
        steps: First and last step whose collectives refine it, where a clock is less sure than `SURE_NS`, or was not
            measured; None: nothing does.
    """
    correction = await asyncio.to_thread(Correction, await store.clocks.readings(key, launch, between=between))
    if not correction.server or launch is None or steps is None:
        return correction
    holders = await store.clocks.holders(key, launch)
    if all(_is_sure(correction, one) for one in holders if not one.is_worker):
        return correction
    return (await _refined(store, key, correction, of=(launch, holders), steps=steps)).correction


def _is_sure(correction: Correction, holder: ClockHolder) -> bool:
    last = _last(correction, holder)
    found = None if last is None else correction.at(holder.incarnation, last.at_ns)
    return found is not None and found[1] <= SURE_NS


async def _refined(
    store: TraceStore,
    key: RunKey,
    correction: Correction,
    /,
    *,
    of: tuple[str, Sequence[ClockHolder]],
    steps: tuple[int, int],
) -> Refined:
    """A correction with what the collectives of some steps tell; one process stands for all that share its clock."""
    launch, holders = of
    by_clock: dict[str, str] = {}
    for holder in holders:
        if not holder.is_worker:
            by_clock.setdefault(correction.clock_of(holder.incarnation), holder.incarnation)
    if len(by_clock) < 2 or not correction.server:
        return Refined(correction)
    some = list(by_clock.values())[:MOST_CLOCKS]
    met = await store.clocks.meetings(key, launch, steps=steps, incarnations=some)
    return await asyncio.to_thread(refined, correction, met)


def clock_json(
    correction: Correction, holders: Sequence[ClockHolder], *, last_ns: Mapping[str, int]
) -> dict[str, Json]:
    """What an answer says of the clock that its times are on: `applied`, `server`, `error_ns`, `unmeasured_ranks`.

    Args:
        correction: What puts times on the clock.
        holders: The processes of the launch.
        last_ns: By process: the last raw time that is shown; `error_ns` is the greatest bound of these.
    """
    found = [correction.at(incarnation, at_ns) for incarnation, at_ns in last_ns.items()]
    return {
        "applied": any(one is not None for one in found),
        "server": correction.server,
        "error_ns": max((one[1] for one in found if one is not None), default=None),
        "unmeasured_ranks": unmeasured_ranks(correction, holders),
    }


def unmeasured_ranks(correction: Correction, holders: Sequence[ClockHolder]) -> list[int]:
    """The ranks with a trainer whose times have no place among the others', ascending."""
    return sorted({one.rank for one in holders if not one.is_worker and not correction.is_measured(one.incarnation)})


def _items(correction: Correction, holders: Sequence[ClockHolder]) -> list[Json]:
    return [_item(correction, holder, reading=_last(correction, holder)) for holder in holders]


def _last(correction: Correction, holder: ClockHolder) -> ClockReading | None:
    return max(correction.of(holder.incarnation), key=lambda one: one.at_ns, default=None)


def _item(correction: Correction, holder: ClockHolder, *, reading: ClockReading | None) -> dict[str, Json]:
    state = "foreign" if correction.is_foreign(holder.incarnation) else "measured"
    return {
        "rank": holder.rank,
        "process_role": "worker" if holder.is_worker else "trainer",
        "node": holder.node,
        "incarnation": holder.incarnation,
        "clock": correction.clock_of(holder.incarnation),
        "clock_state": state if reading is not None else "unmeasured",
        **moment("measured", None if reading is None else reading.at_ns),
        "offset_ns": None if reading is None else reading.offset_ns,
        "error_ns": None if reading is None else reading.error_ns,
        "drift_ns_per_s": None if reading is None else reading.drift,
        "rtt_ns": None if reading is None else reading.rtt_ns,
        "samples": 0 if reading is None else reading.samples,
        "server": "" if reading is None else reading.server,
    }


def _warnings(correction: Correction, holders: Sequence[ClockHolder]) -> list[str]:
    trainers = [one for one in holders if not one.is_worker]
    foreign = sorted({one.rank for one in trainers if correction.is_foreign(one.incarnation)})
    never = sorted(set(unmeasured_ranks(correction, holders)) - set(foreign))
    found: list[str] = []
    if never:
        found.append(
            f"the clocks of {_ranks(never)} were not measured, so their times have no place among those of other "
            "nodes: is an agent process (RANKSCOPE_AGENT=process) on their node, and does it reach the gateway?"
        )
    if foreign:
        found.append(
            f"the clocks of {_ranks(foreign)} were held against another gateway's than {correction.server!r}, and no "
            "agent was held against both: name all gateways in RANKSCOPE_ENDPOINT on every node"
        )
    return found


def _contradictions(held: Refined, holders: Sequence[ClockHolder]) -> list[str]:
    of = sorted({one.rank for one in holders if held.correction.clock_of(one.incarnation) in held.contradicting})
    if not of:
        return []
    text = (
        f"what was measured of the clocks of {_ranks(of)} contradicts collectives of the last steps, which nobody can "
        "leave before the last one has come: their errors are taken as greater"
    )
    return [text]


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:RANKS_NAMED]))
    more = f" and {len(ranks) - RANKS_NAMED} more" if len(ranks) > RANKS_NAMED else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"
