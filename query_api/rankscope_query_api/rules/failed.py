"""Looks which rank failed first: reads the processes that ended as failed, and puts their ends on one clock."""

from collections.abc import Sequence

from rankscope_query_api.failing import Failure
from rankscope_query_api.ranks.clocks import Correction
from rankscope_query_api.ranks.failures import FirstFailure, first_failure
from rankscope_query_api.ranks.verdicts import named
from rankscope_query_api.rules.finding import Finding
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey

NAME, VERSION = "first_failure", 1

_MESSAGE = 300
"""Characters of an error that the sentence has."""


async def first_failed(store: TraceStore, key: RunKey, *, launch: str) -> FirstFailure | None:
    """Who failed first in a launch; None: nobody failed."""
    failures = await store.failing.failures(key, launch)
    if not failures:
        return None
    times = [one.failed_ns for one in failures]
    correction = Correction(await store.clocks.readings(key, launch, between=(min(times), max(times))))
    return first_failure(
        failures, {one.incarnation: correction.moment(one.incarnation, one.failed_ns) for one in failures}
    )


def findings_of(found: FirstFailure | None, launch: str) -> Sequence[Finding]:
    """The first failure as a finding."""
    if found is None:
        return []
    first = found.first[0]
    ranks = sorted({one.rank for one in found.first})
    after = sorted({one.rank for one in found.after})
    return [
        Finding(
            rule=NAME,
            version=VERSION,
            severity="error",
            launch=launch,
            step=first.step,
            rank=first.rank if len(ranks) == 1 else None,
            subject=f"ranks {','.join(map(str, ranks))}",
            sentence=_sentence(found, ranks, after=after),
            evidence={
                "first": [_failure_json(one) for one in found.first],
                "after": [_failure_json(one) for one in found.after],
                "basis": "the others' errors are of the connection" if found.is_by_words else "clocks",
            },
            first_ns=first.failed_ns,
            last_ns=first.failed_ns,
        )
    ]


def _sentence(found: FirstFailure, ranks: Sequence[int], *, after: Sequence[int]) -> str:
    first = found.first[0]
    error = first.error_type or "an error that no span tells"
    message = f": {first.message[:_MESSAGE]}" if first.message else ""
    at = "" if first.step is None else f" at step {first.step}"
    others = f"; {named(after)} failed after it" if after else ""
    if len(ranks) == 1:
        return f"{named(ranks)} failed first, with {error}{at}{message}{others}"
    return (
        f"{named(ranks)} failed, and which was first is not known; rank {first.rank} with {error}{at}{message}{others}"
    )


def _failure_json(one: Failure) -> dict[str, str | int | None]:
    return {"rank": one.rank, "node": one.node, "error_type": one.error_type, "message": one.message, "step": one.step}
