"""What the query service asks of a store about ranks beside each other, as Protocols; `store` says what all promise."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rankscope_query_api.answers import Key
from rankscope_query_api.meetings import (
    CollectiveFilter,
    Matched,
    Meeting,
    Member,
    OwnSpan,
    Placed,
    Stay,
    StepReach,
    Window,
)
from rankscope_query_api.values import Record, RunKey, Slice

COLLECTIVE_KEY = (int, str, int, int, str, int, int)
"""Shape of the key of `CollectiveReader.collectives`."""


class MeetingReader(Protocol):
    """Collectives over their ranks."""

    async def members(self, key: RunKey, launch: str) -> Sequence[Member]:
        """The trainers of a launch, by (rank, incarnation)."""
        ...

    async def reach(self, key: RunKey, launch: str, *, first: int, last: int, steps: int) -> Sequence[StepReach]:
        """What there is of the last `steps` of these steps, the latest first; last of all, what is outside any."""
        ...

    async def extents(self, key: RunKey, window: Window) -> Mapping[str, tuple[int, int]]:
        """By process: its first and last entry in a window, by its own clock."""
        ...

    async def meetings(self, key: RunKey, window: Window, *, placed: Sequence[Placed], limit: int) -> Sequence[Meeting]:
        """The matched collectives of a window by (when the last one came, group, number); a row counts once."""
        ...

    async def own_spans(self, key: RunKey, launch: str, *, stays: Sequence[tuple[int, Stay]]) -> Sequence[OwnSpan]:
        """What was traced of these ranks in these steps and the one before: phases, checkpoints, collections."""
        ...


class CollectiveReader(Protocol):
    """Collectives as ranks sent them."""

    async def arrivals(self, key: RunKey, launch: str, *, of: Matched, limit: int) -> Sequence[Record]:
        """The rows of these collectives by (group, its ranks, number, rank, incarnation), each once."""
        ...

    async def passed(self, key: RunKey, launch: str, *, groups: Sequence[str]) -> Sequence[Record]:
        """By (group, rank): `last`, the greatest number that a rank has in a group."""
        ...

    async def collectives(
        self, key: RunKey, where: CollectiveFilter, *, limit: int, after: Key | None
    ) -> Slice[Record]:
        """Rows by (step, group, number, rank, incarnation, row key)."""
        ...
