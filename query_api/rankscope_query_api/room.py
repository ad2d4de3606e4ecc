"""What answers hold in this process, all together: rows that were read, then bytes that no reader has taken yet.

Each answer is bounded by itself, and a reader that takes nothing keeps its own for as long as it likes: six of 80 MiB
took a service from 0.7 to 3.2 GB. So no query begins while others hold more than there is room for; to make room, the
reader that has taken nothing for the longest time loses its answer. Where all who hold something want more, and none
would give anything back, the one that began first goes on.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from rankscope_query_api.errors import BusyError
from rankscope_query_api.settings import Settings

LEAST_PATIENCE_S = 2.0
"""Even where room is short, a reader has so long to take more: a network may pause for a second."""

_LOOK_S = 0.1
"""Pause between two looks at whether there is room."""

_SAMPLE, _SAMPLE_WITHIN = 64, 8
"""Values of a column that its size is told by, and of a list or map inside of one. To look at each value of 64 lists of
3,000 kept the loop from everybody for 53 ms, now 0.4."""

_NEVER = float("inf")


class Holding:
    """What one request holds.

    Args:
        room: Of which it takes.
    """

    def __init__(self, room: "Room") -> None:
        self.held_bytes = 0
        self._room = room
        self._waits_since = _NEVER
        self._asked_room = 0
        self._dropped: Callable[[], object] = bool
        self._asking = set[asyncio.Task[Any]]()

    def begin(self, dropped: Callable[[], object]) -> None:
        """The request is under way; `dropped` ends it."""
        self._dropped = dropped
        self._room.holdings[self] = None

    def end(self) -> None:
        """Nothing of it is left; a query that still runs for it, as the other of two of which one failed, is ended."""
        self._room.holdings.pop(self, None)
        for task in tuple(self._asking):
            task.cancel()

    @contextmanager
    def asking(self) -> Generator[None]:
        """What is done within is done for the request, and ends with it."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._asking.add(task)
        try:
            yield
        finally:
            self._asking.discard(task)

    def read(self, columns: Sequence[Sequence[Any]]) -> None:
        """Rows came for it, by columns."""
        self.held_bytes += sum(map(_size_of, columns))

    def written(self, size: int) -> None:
        """It is bytes now, so many, and no longer rows."""
        self.held_bytes = size

    def waits(self, *, for_reader: bool) -> None:
        """Its reader is to take more now, or has taken it."""
        self._waits_since = time.monotonic() if for_reader else _NEVER

    @property
    def waited_s(self) -> float:
        """How long its reader has taken nothing; negative: none is waited for."""
        return time.monotonic() - self._waits_since

    def drop(self) -> None:
        """Ends it."""
        self.end()
        self._dropped()

    @property
    def asks_room(self) -> bool:
        """Whether a query of its waits for room, and with it what was read for it."""
        return self._asked_room > 0

    @property
    def has_room(self) -> bool:
        """Whether another query may bring rows for this request."""
        return not self._room.is_full(beside=self)

    async def admit(self) -> None:
        """Returns once another query may bring rows for this request.

        Raises:
            BusyError: The answers of others fill the room.
        """
        self._asked_room += 1
        try:
            await self._room.make(beside=self)
        finally:
            self._asked_room -= 1


class Room:
    """The room for answers of one service. Used on one event loop.

    Args:
        settings: How much there is, and how long readers and queries may wait.
    """

    def __init__(self, settings: Settings) -> None:
        self.patience_s = settings.query_send_timeout_s
        self.holdings: dict[Holding, None] = {}
        self._most = settings.query_max_answers_bytes
        self._timeout_s = settings.query_timeout_s

    def is_full(self, *, beside: Holding) -> bool:
        """Whether the answers of others take more than there is, and one of them may yet give some back."""
        others = self._others(beside)
        return sum(other.held_bytes for other in others) > self._most and not self._is_first(beside, others)

    async def make(self, *, beside: Holding) -> None:
        """Waits for room, and makes it by dropping readers that take nothing.

        Raises:
            BusyError: There is none after as long as a query may run.
        """
        ends_at = time.monotonic() + self._timeout_s
        while self.is_full(beside=beside):
            slowest = max(self._others(beside), key=lambda other: other.waited_s)
            if slowest.waited_s >= min(LEAST_PATIENCE_S, self.patience_s):
                slowest.drop()
            elif time.monotonic() > ends_at:
                raise BusyError(
                    f"other answers fill the {self._most / 2**20:,.10g} MiB that this service holds at a time",
                    hint="ask again in a moment; RANKSCOPE_QUERY_MAX_ANSWERS_BYTES sets how much it holds",
                )
            else:
                await asyncio.sleep(_LOOK_S)

    def _others(self, beside: Holding) -> list[Holding]:
        """Those who hold something beside one, in the order in which they began."""
        return [other for other in self.holdings if other.held_bytes and other is not beside]

    def _is_first(self, holding: Holding, others: Sequence[Holding]) -> bool:
        """Whether all who hold something wait for the others' room, and this one of them began first."""
        first = next(one for one in self.holdings if one.held_bytes)
        return first is holding and all(other.asks_room for other in others)


HELD: ContextVar[Holding | None] = ContextVar("rankscope_query_held", default=None)
"""What the request holds that this code works for; None: it works for none."""


def _size_of(values: Sequence[Any], *, sample: int = _SAMPLE) -> int:
    """About the bytes of some values, by a few of them."""
    some = values[:: max(1, len(values) // sample)]
    return sum(map(_size, some)) * len(values) // max(1, len(some))


def _size(value: Any) -> int:
    own = 8 + sys.getsizeof(value)
    if isinstance(value, dict):
        held = cast("dict[Any, Any]", value)
        return own + _size_within(list(held)) + _size_within(list(held.values()))
    if isinstance(value, list | tuple):
        return own + _size_within(cast("Sequence[Any]", value))
    return own


def _size_within(values: Sequence[Any]) -> int:
    return _size_of(values, sample=_SAMPLE_WITHIN)
