"""Reading the shards in order, without passing over an entry.

An entry that the broker handed out and whose answer was lost stays pending for this consumer and
is never handed out as new again. So after every failed read, as at the start, reading goes on
with what is pending behind the last entry seen, and only then with new entries.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from rankscope_ingest import metrics
from rankscope_ingest.collector import Collector
from rankscope_ingest.entries import Entry, Place
from rankscope_ingest.errors import BrokerUnavailable, Busy
from rankscope_ingest.patience import patiently
from rankscope_proto.identity import SHARDS

logger = logging.getLogger(__name__)

READ_BLOCK_MS = 250
READ_PAUSE_S = 0.02
"""Between reads, so that under load one read brings many entries instead of one."""
MAX_READ_BYTES = 16 * 2**20
MAX_READ_COUNT = 64
"""Most entries of one shard in one read."""


class EntrySource(Protocol):
    """The broker as reading needs it; `Buffer` says what each method promises."""

    async def read(self, *, count: int, block_ms: int) -> list[Entry]:
        """New entries."""
        ...

    async def pending(self, after: Sequence[str], *, count: int) -> tuple[list[Entry], list[Place]]:
        """Entries read before and not committed, and places whose data is gone."""
        ...


class Reading:
    """Moves entries from the broker into a collector.

    Args:
        source: The broker.
        collector: Takes the entries; bounds how far reading runs ahead.
    """

    def __init__(self, source: EntrySource, collector: Collector) -> None:
        self._source = source
        self._collector = collector
        self._seen = ["0"] * SHARDS
        self._entry_bytes = MAX_READ_BYTES

    async def run(self, stop: asyncio.Event) -> None:
        """Reads until `stop` is set, then closes the collector."""
        try:
            await self._catch_up(stop)
            while not stop.is_set():
                await self._collector.room()
                await self._read_new(stop)
        finally:
            await self._collector.close()

    async def _read_new(self, stop: asyncio.Event) -> None:
        try:
            entries = await self._source.read(count=self._count(), block_ms=READ_BLOCK_MS)
        except (BrokerUnavailable, Busy) as error:
            logger.warning("reading stopped: %s", error)
            await self._catch_up(stop)
            return
        if entries:
            await self._take(entries)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), READ_PAUSE_S)

    async def _catch_up(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._collector.room()
            entries, gone = await patiently(lambda: self._source.pending(self._seen, count=self._count()))
            if not entries and not gone:
                return
            for place in gone:
                logger.error("a pending entry has no data left in the broker", extra={"place": f"{place}"})
                metrics.ENTRIES_GONE.inc()
                self._seen[place.shard] = place.id
            await self._take(entries)

    async def _take(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._seen[entry.place.shard] = entry.place.id
        if entries:
            self._entry_bytes = sum(len(entry.payload) for entry in entries) // len(entries) + 1
        await self._collector.add(entries)

    def _count(self) -> int:
        """Entries to ask of each shard: the broker bounds a read by count only, so by the size last seen."""
        return max(1, min(MAX_READ_COUNT, MAX_READ_BYTES // (self._entry_bytes * SHARDS)))
