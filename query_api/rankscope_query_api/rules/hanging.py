"""Looks whether a launch hangs: reads where its processes stand, and of collectives only what some wait in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_query_api.ranks.hangs import THRESHOLDS, judge, open_collectives
from rankscope_query_api.ranks.verdicts import Verdict
from rankscope_query_api.rules.finding import Finding
from rankscope_query_api.standing import Standing
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey

NAME, VERSION = "hang", 1


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at a launch.

    Attributes:
        standings: Where its processes stand, by rank.
        now_ns: When, on the store's clock.
        verdict: Why it does not go on; None: it does, or is over, or nothing can be said yet.
    """

    standings: Sequence[Standing]
    now_ns: int
    verdict: Verdict | None


async def look(store: TraceStore, key: RunKey, *, launch: str, thresholds: Mapping[str, float] = THRESHOLDS) -> Looked:
    """Looks where the processes of a launch stand, and judges it."""
    standings, now_ns = await store.standing.standings(key, launch)
    open_ones = open_collectives(standings)
    groups = await store.standing.groups(key, launch, names=sorted({group for group, _ in open_ones}))
    entered = await store.standing.entered(key, launch, of=open_ones)
    verdict = judge(standings, groups, entered=entered, now_ns=now_ns, thresholds=thresholds)
    return Looked(standings, now_ns, verdict)


def findings_of(looked: Looked, launch: str) -> Sequence[Finding]:
    """The verdict as a finding. It is the same one while the same ranks are to blame in the same collective."""
    verdict = looked.verdict
    if verdict is None:
        return []
    ranks = ",".join(map(str, verdict.ranks))
    return [
        Finding(
            rule=NAME,
            version=VERSION,
            severity="error",
            launch=launch,
            step=verdict.step,
            rank=verdict.ranks[0] if len(verdict.ranks) == 1 else None,
            subject=f"{verdict.kind} ranks {ranks} group {verdict.group} #{verdict.cseq}",
            sentence=f"{verdict.kind}: {verdict.sentence}",
            evidence={
                **verdict.evidence,
                "kind": verdict.kind,
                "ranks": list(verdict.ranks),
                "group": verdict.group,
                "seq": verdict.cseq,
                "op": verdict.op,
                "module": verdict.module,
                "confidence": verdict.confidence,
                "stack": verdict.stack,
            },
            thresholds=dict(verdict.thresholds),
            first_ns=verdict.since_ns,
            last_ns=looked.now_ns,
        )
    ]
