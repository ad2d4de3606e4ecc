"""Gathers entries into the next group while the previous one is being inserted.

It holds at most one group and what the last read brought on top. A group is handed over when it
has enough rows, or when the linger has passed since the one before it, whichever comes first: under
load an insert follows the one before it at once, at rest an entry waits for nothing.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable

from rankscope_ingest.entries import MAX_ENTRIES, MAX_EXPANDED_BYTES, Entry, Group, take

ENOUGH = 0.5
"""Share of the row limit from which an idle writer does not wait for more."""


class Collector:
    """A bounded queue of entries that gives groups.

    Args:
        rows: Most rows of a group.
        size: Most payload bytes of a group.
        linger_s: Least time from one small group to the next, in which an entry waits for others.
    """

    def __init__(self, *, rows: int, size: int, linger_s: float) -> None:
        self._limit_rows = rows
        self._limit_size = size
        self._linger_s = linger_s
        self._entries: deque[Entry] = deque()
        self._rows = 0
        self._size = 0
        self._weight = 0
        self._given_at = time.monotonic()
        self._closed = False
        self._poked = False
        self._changed = asyncio.Condition()

    async def add(self, entries: Iterable[Entry]) -> None:
        """Takes entries in the order in which they were read."""
        async with self._changed:
            for entry in entries:
                self._entries.append(entry)
                self._count(entry, 1)
            self._changed.notify_all()

    async def room(self) -> None:
        """Returns when less than a group is held."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or not self._is_full())

    async def close(self) -> None:
        """Ends the gathering: what is held is given out, then None."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def drop(self, shard: int) -> bool:
        """Lets go of what is held of a shard; whether anything was."""
        async with self._changed:
            before = len(self._entries)
            for entry in self._entries:
                if entry.place.shard == shard:
                    self._count(entry, -1)
            self._entries = deque(entry for entry in self._entries if entry.place.shard != shard)
            self._changed.notify_all()
            return len(self._entries) < before

    async def poke(self) -> None:
        """Lets `next_group` return at once, with an empty group where there is none to give."""
        async with self._changed:
            self._poked = True
            self._changed.notify_all()

    async def next_group(self) -> Group | None:
        """The next group, an empty one after `poke`, or None after `close` when nothing is left."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or self._poked or bool(self._entries))
            if self._poked:
                self._poked = False
                return Group(())
            await self._linger()
            if not self._entries:
                return None if self._closed else Group(())
            group = take(self._entries, rows=self._limit_rows, size=self._limit_size)
            for _ in group.entries:
                self._count(self._entries.popleft(), -1)
            self._given_at = time.monotonic()
            self._changed.notify_all()
            return group

    async def _linger(self) -> None:
        left_s = self._given_at + self._linger_s - time.monotonic()
        try:
            async with asyncio.timeout(max(left_s, 0)):
                await self._changed.wait_for(lambda: self._closed or self._is_enough())
        except TimeoutError:
            return

    def _is_enough(self) -> bool:
        return self._rows >= self._limit_rows * ENOUGH or self._is_full()

    def _is_full(self) -> bool:
        is_heavy = self._size >= self._limit_size or self._weight >= MAX_EXPANDED_BYTES
        return is_heavy or self._rows >= self._limit_rows or len(self._entries) >= MAX_ENTRIES

    def _count(self, entry: Entry, sign: int) -> None:
        self._rows += sign * entry.rows
        self._size += sign * len(entry.payload)
        self._weight += sign * entry.weight
