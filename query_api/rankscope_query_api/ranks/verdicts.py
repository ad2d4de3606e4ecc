"""What a judge of hangs says: the verdict, and its sentence for a reader."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

_LIBRARIES = frozenset({"torch", "rankscope", "numpy"})

Kind = Literal[
    "rank_missing",
    "order_mismatch",
    "size_mismatch",
    "none_left",
    "process_dead",
    "process_stopped",
    "host_stuck",
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run does not go on.

    Attributes:
        kind: What it is.
        ranks: Whose doing it is; for none_left, who waits.
        group: The group in which the others wait; "": none do.
        cseq: Number of the collective; 0: none.
        op: What the others entered; "": not known.
        step: Step of the first of these ranks; None: none.
        phase: Code of its phase.
        module: What the collective is for; "": not known.
        since_ns: Since when, on the store's clock.
        confidence: certain: it was seen; likely: it follows from who waits for whom.
        stack: Stack of the first of these ranks (JSON); "": not taken.
        sentence: All that for a reader.
        waiting: Ranks that wait in that collective.
        evidence: What speaks for it.
        thresholds: Those that it was judged by.
    """

    kind: Kind
    ranks: Sequence[int]
    group: str
    cseq: int
    op: str
    step: int | None
    phase: int
    module: str
    since_ns: int
    confidence: Literal["certain", "likely"]
    stack: str
    sentence: str
    waiting: Sequence[int] = ()
    evidence: Mapping[str, str | int | Sequence[int]] = field(default_factory=dict[str, str | int | Sequence[int]])
    thresholds: Mapping[str, float] = field(default_factory=dict[str, float])


def sentence_of(kind: Kind, ranks: Sequence[int], *, where: str, why: str, waiting: Sequence[int]) -> str:
    """All that a verdict says, in one sentence.

    Args:
        kind: What it is.
        ranks: Whose doing it is.
        where: The collective; "": none.
        why: What speaks for it.
        waiting: Ranks that wait in the collective.
    """
    who = named(ranks)
    others = f"; {named(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in {where}" if waiting and where else ""
    match kind:
        case "rank_missing":
            return f"{who} did not come to {where}: {why}{others}"
        case "order_mismatch":
            return f"{who} entered another collective than the others as {where}: {why}"
        case "size_mismatch":
            return f"{who} entered {where} with another size than the others: {why}"
        case "none_left":
            return f"{who} entered {where}, and none has left: look at what connects them"
        case "process_dead" | "process_stopped" | "host_stuck":
            return f"{who}: {why}{others}"


def telling_frame(stack: str) -> str:
    """The innermost frame of the first thread that is the training's own, else the innermost; "": none was taken."""
    try:
        threads: Any = json.loads(stack) if stack else None
        frames = [str(frame) for frame in threads[0]["frames"]] if threads else []
    except (ValueError, TypeError, KeyError, IndexError):
        return ""
    return next((frame for frame in frames if not _is_of_library(frame)), frames[0] if frames else "")


def _is_of_library(frame: str) -> bool:
    """Whether a frame, as `name (file:line)`, is of Python's library, torch or the SDK."""
    place = frame.rpartition("(")[2].replace("\\", "/")
    first = place.partition(":")[0].removesuffix(".py").split("/")[0]
    return first in sys.stdlib_module_names or first in _LIBRARIES or first.startswith("<frozen")


def named(ranks: Sequence[int]) -> str:
    """Ranks as a reader is told of them, the first eight."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"ranks {shown}, …" if len(ranks) > 8 else f"ranks {shown}"
