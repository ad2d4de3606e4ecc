"""The judges that no query replaces: each reads its evidence, and hands it to a pure function that judges.

A judge answers None where the launch lacks what it is about: that is no clean bill.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rankscope_query_api.findings import Straggler, find_straggler
from rankscope_query_api.rules import failed, hanging, spreading
from rankscope_query_api.rules.catalog import Threshold
from rankscope_query_api.rules.finding import Finding
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import Launch, RunKey

CELLS = 200_000
"""Most (step, rank) pairs of which phase times are judged: 2,000 steps of 100 ranks."""

Judge = Callable[[TraceStore, RunKey, Launch, Mapping[str, Threshold]], Awaitable[Sequence[Finding] | None]]


async def _hang(
    store: TraceStore, key: RunKey, launch: Launch, thresholds: Mapping[str, Threshold]
) -> Sequence[Finding] | None:
    limits = {name: float(value) for name, value in thresholds.items()}
    looked = await hanging.look(store, key, launch.launch_id, thresholds=limits)
    return hanging.findings_of(looked, launch.launch_id) if looked.standings else None


async def _nonfinite(
    store: TraceStore, key: RunKey, launch: Launch, _thresholds: Mapping[str, Threshold]
) -> Sequence[Finding] | None:
    if not launch.rows.get("tensor_stats"):
        return None
    return spreading.findings_of(await spreading.traced(store, key, launch.launch_id), launch.launch_id)


async def _first_failure(
    store: TraceStore, key: RunKey, launch: Launch, _thresholds: Mapping[str, Threshold]
) -> Sequence[Finding] | None:
    return failed.findings_of(await failed.first_failed(store, key, launch.launch_id), launch.launch_id)


async def _straggler(
    store: TraceStore, key: RunKey, launch: Launch, thresholds: Mapping[str, Threshold]
) -> Sequence[Finding] | None:
    times = await store.spans.step_times(key, launch.launch_id, steps=int(thresholds["steps"]), cells=CELLS)
    if not times:
        return None
    straggler = await asyncio.to_thread(find_straggler, times)
    return [] if straggler is None else [_late(straggler, launch, thresholds)]


def _late(straggler: Straggler, launch: Launch, thresholds: Mapping[str, Threshold]) -> Finding:
    lost_ms = straggler.lost_ns / 1e6
    return Finding(
        rule="straggler",
        version=1,
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
    )


JUDGES: Mapping[str, Judge] = {
    "hang": _hang,
    "nonfinite": _nonfinite,
    "straggler": _straggler,
    "first_failure": _first_failure,
}
"""By the name that a rule gives."""
