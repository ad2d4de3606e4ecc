"""What is known of a collective that did not come together: who arrived, and who did not."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """One rank's part in a collective.

    Attributes:
        rank: Global rank.
        entry_ns: When it entered, on the clock of the server where that is known, ns since the epoch.
        error_ns: Bound of the clock's error, either way; None: its clock was never measured.
        op: Operation, as torch names it.
    """

    rank: int
    entry_ns: int
    error_ns: int | None
    op: str


@dataclass(frozen=True, slots=True)
class Match:
    """One collective over its ranks.

    Attributes:
        group: The process group.
        group_ranks: Its ranks as text, `0-3,8`; "": unknown.
        cseq: Number of the collective in its group.
        arrivals: By rank.
        missing: Ranks of the group of which no arrival is known, though they were heard of since.
    """

    group: str
    group_ranks: str
    cseq: int
    arrivals: Sequence[Arrival]
    missing: Sequence[int]
