"""The writer: from the broker's streams to durable rows, each batch exactly once.

It holds shards by leases, opens each that comes (`Mover.settle`, then reading from its first entry),
moves group after group, and gives shards beyond its share back between two groups. Stopping:
reading ends, what was read is written and committed, the shards are handed over, the connections close.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Literal, Protocol

from rankscope_ingest import metrics
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.clickhouse import Store
from rankscope_ingest.collector import Collector
from rankscope_ingest.connection import TIMEOUT_S
from rankscope_ingest.dead_letters import DeadLetters
from rankscope_ingest.errors import BrokerUnavailable, Busy
from rankscope_ingest.migrate import check_migrated, migrate
from rankscope_ingest.moving import Letters, Mover, RowSink, Source
from rankscope_ingest.patience import patiently
from rankscope_ingest.reading import READ_BLOCK_MS, EntrySource, Reading
from rankscope_ingest.retention import keep_for
from rankscope_ingest.settings import WriterSettings
from rankscope_ingest.shards import LeaseBroker, Shards
from rankscope_ingest.streams import Streams

logger = logging.getLogger(__name__)

STOP_GRACE_S = 10.0
"""Longest wait at the end for the last groups; what is left is settled by whoever takes the shards."""


class Broker(EntrySource, LeaseBroker, Source, Protocol):
    """The broker as the writer needs it; `Streams` says what each method promises."""

    async def last_id(self, shard: int) -> str:
        """Id of a shard's newest entry."""
        ...


async def serve(settings: Mapping[str, str], stop: asyncio.Event) -> None:
    """Runs a writer until `stop` is set.

    Args:
        settings: An environment-like mapping; see `WriterSettings`.
        stop: Set by the caller to end it in order.

    Raises:
        ConfigError: A setting cannot be used.
        CannotStart: The folder is held by another process, or cannot be opened.
        BrokerError: The broker cannot be reached or is unfit at the start.
        StoreError: The store is too old, not migrated or cannot be reached at the start.
    """
    config = WriterSettings.read(settings)
    metrics.serve_metrics(config.writer_metrics_listen, setting="RANKSCOPE_WRITER_METRICS_LISTEN")
    async with AsyncExitStack() as stack:
        store = Store(config.clickhouse_url)
        stack.push_async_callback(store.close)
        letters = DeadLetters(config.redis_url)
        stack.push_async_callback(letters.close)
        streams = Streams(config.redis_url, read_timeout_s=TIMEOUT_S + READ_BLOCK_MS / 1_000)
        stack.push_async_callback(streams.close)
        await _check(store, config=config)
        collector = Collector(rows=config.group_rows, size=config.group_bytes, linger_s=config.linger_ms / 1_000)
        await Writer(streams, store, letters=letters, collector=collector).run(stop)


async def _check(store: Store, *, config: WriterSettings) -> None:
    buffer = Buffer(config.redis_url)
    try:
        for warning in await buffer.check():
            logger.warning(warning)
    finally:
        await buffer.close()
    await store.check_version()
    if config.migrate:
        await migrate(store)
    await check_migrated(store)
    await store.check_tables()
    await keep_for(store, config.retention_days)


class Writer:
    """Moves groups from a broker to a sink.

    Args:
        broker: Leases and streams.
        sink: The store.
        letters: Takes what the store cannot parse.
        collector: Forms the groups.
    """

    def __init__(self, broker: Broker, sink: RowSink, *, letters: Letters, collector: Collector) -> None:
        self._broker = broker
        self._collector = collector
        self._shards = Shards(broker, changed=collector.poke)
        self._reading = Reading(broker, collector, identity=self._shards)
        self._mover = Mover(broker, sink, letters=letters, shards=self._shards)

    async def run(self, stop: asyncio.Event) -> None:
        """Writes until `stop` is set and what was read is written.

        Raises:
            BrokerError: The broker cannot be reached or is unfit at the start, or refused a command.
        """
        await self._shards.tick()
        keeping = asyncio.create_task(self._shards.keep(), name="keep the leases")
        work = asyncio.create_task(self._work(stop), name="move groups")
        stopped = asyncio.create_task(stop.wait(), name="wait for stop")
        try:
            await asyncio.wait({keeping, work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not keeping.done():
                await asyncio.wait({work}, timeout=STOP_GRACE_S)
            if not work.done():
                logger.warning("the last group is not written yet; it is repeated at the next start")
        finally:
            await _end(stopped, work, keeping)
            await self._leave(is_clean=work.done() and not work.cancelled() and work.exception() is None)
        for task in (keeping, work):
            if not task.cancelled():
                task.result()

    async def _work(self, stop: asyncio.Event) -> None:
        await self._mover.prepare()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reading.run(stop), name="read entries")
            tasks.create_task(self._write_groups(), name="write groups")

    async def _write_groups(self) -> None:
        while True:
            await self._follow_leases()
            group = await self._collector.next_group()
            if group is None:
                return
            if group.entries:
                await self._mover.move(group)

    async def _follow_leases(self) -> None:
        """Opens the shards that came, closes those that went, hands over what is beyond the share."""
        for shard, lease in self._reading.shards.items():
            held = self._shards.held.get(shard)
            if held is None or (held.fence, held.epoch) != (lease.fence, lease.epoch):
                await self._reading.close(shard)
        for shard in self._shards.surplus():
            await self._hand_over(shard, is_clean=True)
        closed = sorted(self._shards.held.keys() - self._reading.shards.keys())
        if any(not lease.is_clean for shard, lease in self._shards.held.items() if shard in closed):
            await self._mover.await_strangers()
        for shard in closed:
            await self._open(shard)

    async def _open(self, shard: int) -> None:
        await self._mover.settle(shard)
        doubtful_to = await patiently(lambda: self._broker.last_id(shard))
        lease = self._shards.held.get(shard)
        if lease is not None:
            self._reading.open(shard, lease, doubtful_to="0-0" if lease.is_clean else doubtful_to)

    async def _leave(self, *, is_clean: bool) -> None:
        with suppress(BrokerUnavailable, Busy):  # the leases lapse by themselves
            await self._shards.leave()
        for shard in list(self._shards.held):
            await self._hand_over(shard, is_clean=is_clean)

    async def _hand_over(self, shard: int, *, is_clean: bool) -> None:
        is_closed_clean = await self._reading.close(shard)
        with suppress(BrokerUnavailable, Busy):  # then it lapses
            await self._shards.hand_over(shard, is_clean=is_clean and is_closed_clean)


async def _end(*tasks: asyncio.Task[None] | asyncio.Task[Literal[True]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
