"""What judges of ranks take: one rank's part in a collective, and the parts of all ranks put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Arrival:
    """One rank's part in a collective.

    Attributes:
        rank: Global rank.
        incarnation: Its process, 32 hexadecimal digits.
        entry_ns: When it entered, on the clock of the server where that is known, ns since the epoch.
        exit_ns: When it was over for this rank; None: nothing told.
        error_ns: Bound of the clock's error, either way; None: its clock was never measured.
        entry_source: What told the entry.
        exit_source: What told the exit; "": nothing did.
        op: Operation, as torch names it.
        bytes: Of its input.
        shape: Of its input.
        step: Step that was open; None: none was.
    """

    rank: int
    incarnation: str
    entry_ns: int
    exit_ns: int | None
    error_ns: int | None
    entry_source: str
    exit_source: str
    op: str
    bytes: int
    shape: str
    step: int | None


Mismatch = Literal["", "op", "size", "duplicate"]
"""What does not agree between the arrivals: the operation, the sizes; or one rank arrived twice."""


@dataclass(frozen=True, slots=True)
class Match:
    """One collective over its ranks.

    Attributes:
        launch: Launch id.
        group: The process group.
        ranks: Its ranks; empty where unknown.
        cseq: Number of the collective in its group.
        arrivals: By rank.
        missing: Ranks of the group of which no arrival is known, though they were heard of since.
        mismatch: What does not agree.
    """

    launch: str
    group: str
    ranks: Sequence[int]
    cseq: int
    arrivals: Sequence[Arrival]
    missing: Sequence[int]
    mismatch: Mismatch
