"""Why a rank is missing from a step: from what is stated to be lost, and from when its process was last heard.

Promises: a reason is given only where a row says so; where none does, that is the reason (`unexplained`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from rankscope_query_api.step_rows import HeardRank
from rankscope_query_api.values import SILENT_NS

Reason = Literal["gap", "dead", "silent", "ended", "behind", "never_attached", "other_launch", "no_span", "unexplained"]
"""gap: its rows of the step are stated to be lost or not captured; dead: its process is gone without a last word;
silent: nothing was heard of it for a minute; ended: its last word came before the step; behind: it is heard and has
not sent the step yet; never_attached: nothing was ever heard of it; other_launch: it was heard in another launch of the
run only; no_span: it has the step, and no span at this path; unexplained: none of these."""

MOST_ABSENT = 10_000
"""Ranks of a launch that are named as absent, the first: a world size is what a process says, up to 2**31 - 1."""

_S = 10**9


@dataclass(frozen=True, slots=True)
class MissingRank:
    """A rank that is not there.

    Attributes:
        rank: Global rank.
        reason: Why, in a word.
        detail: What says so, in a sentence.
    """

    rank: int
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Hearsay:
    """What is known of the ranks of a launch beside their spans.

    Attributes:
        launch_id: The launch, 32 hex digits.
        heard: The trainers of the whole run.
        attempts: Ordinal of each launch.
        gap_causes: What is stated to be missing of a rank's spans of the step, in words.
        with_later_steps: Ranks that have a later step.
    """

    launch_id: str
    heard: Sequence[HeardRank]
    attempts: Mapping[str, int]
    gap_causes: Mapping[int, str]
    with_later_steps: AbstractSet[int]


def absent_of(world_size: int, here: AbstractSet[int]) -> tuple[Sequence[int], int]:
    """The ranks below a world size that are not here, the first 10,000 of them, and how many there are."""
    absent = islice((rank for rank in range(world_size) if rank not in here), MOST_ABSENT)
    return list(absent), world_size - sum(0 <= rank < world_size for rank in here)


def reasons(absent: Sequence[int], known: Hearsay) -> list[MissingRank]:
    """Why ranks of a launch have nothing of a step, in their order."""
    of_rank: defaultdict[int, list[HeardRank]] = defaultdict(list)
    for one in known.heard:
        of_rank[one.rank].append(one)
    return [MissingRank(rank, *_reason(rank, of_rank.get(rank, ()), known=known)) for rank in absent]


def absences(absent: Iterable[int], causes: Mapping[int, str]) -> list[MissingRank]:
    """Why ranks that have a step have nothing at one of its paths."""
    return [
        MissingRank(rank, "gap", causes[rank])
        if rank in causes
        else MissingRank(rank, "no_span", "it has the step and no span here")
        for rank in absent
    ]


def _reason(rank: int, heard: Sequence[HeardRank], *, known: Hearsay) -> tuple[Reason, str]:
    here = [one for one in heard if one.launch_id == known.launch_id]
    if not here:
        return _unheard(heard, known)
    if rank in known.gap_causes:
        return "gap", known.gap_causes[rank]
    if rank in known.with_later_steps:
        return "unexplained", "later steps of it are stored; nothing says why this one is not"
    return _quiet(here)


def _unheard(heard: Sequence[HeardRank], known: Hearsay) -> tuple[Reason, str]:
    others = sorted({known.attempts[one.launch_id] for one in heard if one.launch_id in known.attempts})
    if not others:
        return "never_attached", "nothing was ever heard of it"
    listed = ", ".join(map(str, others))
    return "other_launch", f"nothing was heard of it in this launch, only in attempt {listed}"


def _quiet(here: Sequence[HeardRank]) -> tuple[Reason, str]:
    latest = min(here, key=lambda one: one.silent_ns)
    if latest.ended:
        return "ended", "it said its last word before this step"
    if latest.is_gone:
        return "dead", "its process is gone without a last word; what it did last may never have been sent"
    if latest.silent_ns > SILENT_NS:
        return "silent", f"nothing was heard of it for {latest.silent_ns // _S} s"
    return "behind", "it is heard and has not sent this step yet"
