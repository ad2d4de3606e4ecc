"""Reading the shards in order, each from its beginning once it is held, without passing over an entry.

What is in a stream is not committed; so a shard that came, or came back after the broker was
another process, is read from its first entry. Entries up to the newest of that moment may have
rows in the store already and are marked `again`, as are those whose sender says so.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from rankscope_ingest.collector import Collector
from rankscope_ingest.entries import Entry
from rankscope_ingest.patience import patiently
from rankscope_ingest.shards import Held

READ_BLOCK_MS = 250
READ_PAUSE_S = 0.02
"""Between reads, so that under load one read brings many entries instead of one."""
MAX_READ_BYTES = 16 * 2**20
MAX_READ_COUNT = 16
"""Most entries of one shard in one read: what small batches let it guess, large ones must not make 256 MiB of."""
_NOTHING = (0, 0)
"""An id before every entry's."""


class EntrySource(Protocol):
    """The broker as reading needs it; `Streams` says what each method promises."""

    async def read(self, after: Mapping[int, str], *, count: int, block_ms: int) -> list[Entry]:
        """Entries behind a position of each shard."""
        ...


class Identity(Protocol):
    """Tells whether the broker is still the process it was; `Shards` says how."""

    @property
    def epoch(self) -> int:
        """Number of the broker's process."""
        ...

    async def is_same_broker(self) -> bool:
        """Whether it is."""
        ...


@dataclass(slots=True)
class _Position:
    """Where reading a shard stands.

    Attributes:
        lease: Under which it is read.
        after: Id of the last entry read.
        doubtful_to: Newest id whose entry may have rows in the store.
    """

    lease: Held
    after: str
    doubtful_to: tuple[int, int]


class Reading:
    """Moves entries from the broker into a collector.

    Args:
        source: The broker.
        collector: Takes the entries; bounds how far reading runs ahead.
        identity: Asked after every read: what another broker gave is read again from the beginning.
    """

    def __init__(self, source: EntrySource, collector: Collector, *, identity: Identity) -> None:
        self._source = source
        self._collector = collector
        self._identity = identity
        self._positions: dict[int, _Position] = {}
        self._opened = asyncio.Event()
        self._entry_bytes = MAX_READ_BYTES

    @property
    def shards(self) -> dict[int, Held]:
        """The shards that are read, each with the lease under which it is."""
        return {shard: position.lease for shard, position in self._positions.items()}

    def open(self, shard: int, lease: Held, *, doubtful_to: str) -> None:
        """Reads a shard from its first entry on.

        Args:
            shard: 0-based, not read now.
            lease: Under which it is read.
            doubtful_to: Id of the newest entry that may have rows in the store.
        """
        self._positions[shard] = _Position(lease, "0-0", _numbers(doubtful_to))
        self._opened.set()

    async def close(self, shard: int) -> bool:
        """Reads a shard no longer and lets go of what was read of it.

        Returns:
            Whether nothing that is left in the shard may have rows in the store.
        """
        position = self._positions.pop(shard, None)
        if not self._positions:
            self._opened.clear()
        if position is None:
            return False
        was_dropped = await self._collector.drop(shard)
        has_passed = _numbers(position.after) >= position.doubtful_to
        return position.doubtful_to == _NOTHING or (has_passed and not was_dropped)

    async def run(self, stop: asyncio.Event) -> None:
        """Reads until `stop` is set, then closes the collector."""
        try:
            while not stop.is_set():
                await self._collector.room()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._opened.wait(), READ_BLOCK_MS / 1_000)
                    await self._read(stop)
        finally:
            await self._collector.close()

    async def _read(self, stop: asyncio.Event) -> None:
        epoch = self._identity.epoch
        positions = {shard: position for shard, position in self._positions.items() if position.lease.epoch == epoch}
        after = {shard: position.after for shard, position in positions.items()}
        if not after:
            await asyncio.sleep(READ_PAUSE_S)
            return
        entries = await patiently(lambda: self._source.read(after, count=self._count(), block_ms=READ_BLOCK_MS))
        if not await patiently(self._identity.is_same_broker) or self._identity.epoch != epoch:
            return  # another process answered: `Writer` opens the shards again
        current = {shard for shard, position in positions.items() if self._positions.get(shard) is position}
        taken = [self._seen(entry) for entry in entries if entry.place.shard in current]
        if taken:
            largest = max(len(entry.payload) for entry in taken)
            self._entry_bytes = max(largest, self._entry_bytes // 2, 1)
            await self._collector.add(taken)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), READ_PAUSE_S)

    def _seen(self, entry: Entry) -> Entry:
        position = self._positions[entry.place.shard]
        position.after = entry.place.id
        return replace(entry, again=True) if _numbers(entry.place.id) <= position.doubtful_to else entry

    def _count(self) -> int:
        """Entries to ask of each shard: the broker bounds a read by count only, so by the greatest size of late."""
        shards = max(1, len(self._positions))
        return max(1, min(MAX_READ_COUNT, MAX_READ_BYTES // (self._entry_bytes * shards)))


def _numbers(entry_id: str) -> tuple[int, int]:
    """An entry's id as what it compares by: milliseconds and a running number."""
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)
