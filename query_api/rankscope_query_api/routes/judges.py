"""The judges that no query replaces: each reads its evidence, and hands it to a pure function that judges.

A judge answers None where the launch lacks what it is about: that is no clean bill.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from rankscope_query_api.findings import Straggler, find_straggler
from rankscope_query_api.ranks.stragglers import DEFAULT, Thresholds
from rankscope_query_api.ranks.verdicts import named
from rankscope_query_api.routes.waits import Steps, Waits, waits_of
from rankscope_query_api.rules import failed, hanging, spreading
from rankscope_query_api.rules.catalog import STRAGGLER, STRAGGLER_VERSION, Threshold
from rankscope_query_api.rules.finding import Finding
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import Launch, RunKey

CELLS = 200_000
"""Most (step, rank) pairs of which phase times are judged: 2,000 steps of 100 ranks."""

Judge = Callable[[TraceStore, RunKey, Launch, Mapping[str, Threshold]], Awaitable[Sequence[Finding] | None]]


async def _hang(
    store: TraceStore, key: RunKey, launch: Launch, thresholds: Mapping[str, Threshold], /
) -> Sequence[Finding] | None:
    limits = {name: float(value) for name, value in thresholds.items()}
    looked = await hanging.look(store, key, launch=launch.launch_id, thresholds=limits)
    return hanging.findings_of(looked, launch.launch_id) if looked.standings else None


async def _nonfinite(
    store: TraceStore, key: RunKey, launch: Launch, _thresholds: Mapping[str, Threshold], /
) -> Sequence[Finding] | None:
    if not launch.rows.get("tensor_stats"):
        return None
    return spreading.findings_of(await spreading.traced(store, key, launch=launch.launch_id), launch.launch_id)


async def _first_failure(
    store: TraceStore, key: RunKey, launch: Launch, _thresholds: Mapping[str, Threshold], /
) -> Sequence[Finding] | None:
    return failed.findings_of(await failed.first_failed(store, key, launch=launch.launch_id), launch.launch_id)


async def _straggler(
    store: TraceStore, key: RunKey, launch: Launch, thresholds: Mapping[str, Threshold], /
) -> Sequence[Finding] | None:
    """By matched collectives; of a launch that has none by the times of its phases."""
    steps = int(thresholds["phase_steps"])
    own = {name: value for name, value in thresholds.items() if name != "phase_steps"}
    waits = await waits_of(store, key, launch=launch.launch_id, steps=Steps(), thresholds=_limits(own))
    if waits.window is not None:
        return [_recurring(waits, number, launch=launch, thresholds=thresholds) for number in sorted(waits.stragglers)]
    times = await store.spans.step_times(key, launch.launch_id, steps=steps, cells=CELLS)
    if not times:
        return None
    straggler = await asyncio.to_thread(find_straggler, times)
    return [] if straggler is None else [_late(straggler, launch, thresholds=thresholds)]


def _limits(given: Mapping[str, Threshold]) -> Thresholds:
    """The thresholds as their judge takes them."""
    whole = {"steps", "times", "every"}
    return replace(DEFAULT, **{name: int(value) if name in whole else float(value) for name, value in given.items()})


def _recurring(waits: Waits, number: int, *, launch: Launch, thresholds: Mapping[str, Threshold]) -> Finding:
    found, ranks = waits.stragglers[number], waits.keys[number].ranks
    causes = _causes(waits, number)
    cause = found.cause or max(causes, key=lambda name: causes[name], default="unknown")
    often = "in every step" if found.every == 1 else f"in every {found.every}. step"
    return Finding(
        rule=STRAGGLER,
        version=STRAGGLER_VERSION,
        severity="warning",
        launch=launch.launch_id,
        step=found.since_step,
        rank=ranks[0] if len(ranks) == 1 else None,
        subject=f"{named(ranks)} every {found.every}",
        sentence=(
            f"{named(ranks)} makes the others wait {often} since step {found.since_step}: "
            f"{found.lost_ns / 1e6:.3g} ms each, {found.share:.0%} of a step, mostly by {cause}"
        ),
        evidence={
            "every": found.every,
            "steps": found.steps,
            "hits": found.hits,
            "lost_ns": found.lost_ns,
            "share": found.share,
            "confidence": found.confidence,
            "cause": cause,
            "causes": [{"cause": name, "wait_ns": wait} for name, wait in causes.items()],
        },
        thresholds=thresholds,
        last_ns=launch.updated_ns,
    )


def _causes(waits: Waits, number: int) -> Mapping[str, int]:
    """What the others waited for one, by cause."""
    causes: dict[str, int] = {}
    for charge in waits.account.charges:
        if charge.meeting.key == number:
            for cause, wait_ns in charge.causes.items():
                causes[cause] = causes.get(cause, 0) + wait_ns
    return causes


def _late(straggler: Straggler, launch: Launch, *, thresholds: Mapping[str, Threshold]) -> Finding:
    lost_ms = straggler.lost_ns / 1e6
    return Finding(
        rule=STRAGGLER,
        version=STRAGGLER_VERSION,
        severity="warning",
        launch=launch.launch_id,
        step=straggler.since_step,
        rank=straggler.rank,
        subject=f"rank {straggler.rank} {straggler.phase}",
        sentence=(
            f"rank {straggler.rank} is slow in {straggler.phase} since step {straggler.since_step}: "
            f"the others wait {lost_ms:.3g} ms a step, {straggler.share:.0%} of it"
        ),
        evidence={
            "phase": straggler.phase,
            "steps": straggler.steps,
            "charged_steps": straggler.charged_steps,
            "excess_ns": straggler.excess_ns,
            "lost_ns": straggler.lost_ns,
            "share": straggler.share,
        },
        thresholds=thresholds,
        last_ns=launch.updated_ns,
    )


JUDGES: Mapping[str, Judge] = {
    "hang": _hang,
    "nonfinite": _nonfinite,
    "straggler": _straggler,
    "first_failure": _first_failure,
}
"""By the name that a rule gives."""
