"""The writer: from the broker's streams to durable rows, each batch exactly once.

The order of one group: its manifest is kept, it is inserted under its token, its entries are
committed (which moves the senders' durable watermarks), the manifest is forgotten. Killed at any
point, the next start finds the manifest and repeats the same bytes under the same token, which
adds nothing where the insert had happened and completes it where it had half happened. Then come
the entries that were read and never committed, then new ones.

Any failed insert is uncertain and is repeated as it is, for as long as it takes; it is never cut
into smaller ones, because those would have other tokens (tried: 36,300 rows for 18,300).
Stopping: reading ends, what was read is written and committed, the connections close.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

from rankscope_ingest import metrics
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.clickhouse import Store
from rankscope_ingest.collector import Collector
from rankscope_ingest.connection import TIMEOUT_S
from rankscope_ingest.entries import Entry, Group, Manifest, Place
from rankscope_ingest.errors import StoreUncertain
from rankscope_ingest.migrate import check_migrated, migrate
from rankscope_ingest.patience import patiently
from rankscope_ingest.reading import READ_BLOCK_MS, EntrySource, Reading
from rankscope_ingest.settings import WriterSettings
from rankscope_ingest.shards import holding_the_shards
from rankscope_ingest.streams import Streams

logger = logging.getLogger(__name__)

STOP_GRACE_S = 10.0
"""Longest wait at the end for the last groups; what is left stays pending and comes first next time."""
SLOW_INSERT_S = 10.0
"""An insert that takes longer is logged: the store is short of something, or the group is odd."""


class RowSink(Protocol):
    """Where groups become rows."""

    async def write(self, body: bytes, *, token: str) -> None:
        """Inserts one group; returns only once all of its rows are durable in every table.

        The same body under the same token has no further effect, and completes an insert of which
        a part had failed. Another body under a token already used is dropped silently: a token
        must follow from the body. The caller never changes, splits or reorders a body after an
        error.

        Raises:
            StoreUncertain: The insert failed; it may have happened, whole or in part.
        """
        ...


class Source(EntrySource, Protocol):
    """The broker as the writer needs it; `Streams` says what each method promises."""

    async def fetch(self, places: Sequence[Place]) -> list[Entry | None]:
        """Entries by place; None where the broker has none."""
        ...

    async def commit(self, group: Group) -> None:
        """Forgets a durable group."""
        ...

    async def keep_manifest(self, text: str) -> None:
        """Keeps what is about to be inserted; an empty text forgets it."""
        ...

    async def manifest(self) -> Manifest | None:
        """The insert begun and not committed."""
        ...


if TYPE_CHECKING:
    _sink: type[RowSink] = Store
    _source: type[Source] = Streams


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
        buffer = Buffer(config.redis_url)
        stack.push_async_callback(buffer.close)
        streams = Streams(config.redis_url, read_timeout_s=TIMEOUT_S + READ_BLOCK_MS / 1_000)
        stack.push_async_callback(streams.close)
        await _check(store, buffer, config=config)
        await streams.prepare_reading()
        await stack.enter_async_context(holding_the_shards(buffer, stop))
        if not stop.is_set():
            collector = Collector(rows=config.group_rows, size=config.group_bytes, linger_s=config.linger_ms / 1_000)
            await Writer(streams, store, collector=collector).run(stop)


async def _check(store: Store, buffer: Buffer, *, config: WriterSettings) -> None:
    for warning in await buffer.check():
        logger.warning(warning)
    await store.check_version()
    if config.migrate:
        await migrate(store)
    await check_migrated(store)
    await store.check_tables()


class Writer:
    """Moves groups from a source to a sink.

    Args:
        source: The broker.
        sink: The store.
        collector: Forms the groups.
    """

    def __init__(self, source: Source, sink: RowSink, *, collector: Collector) -> None:
        self._source = source
        self._sink = sink
        self._collector = collector

    async def run(self, stop: asyncio.Event) -> None:
        """Recovers, then writes until `stop` is set and what was read is written."""
        work = asyncio.create_task(self._work(stop), name="move groups")
        stopped = asyncio.create_task(stop.wait(), name="wait for stop")
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({work}, timeout=STOP_GRACE_S)
            if not work.done():
                logger.warning("the last group is not written yet; it is repeated at the next start")
        finally:
            stopped.cancel()
            work.cancel()
            await asyncio.wait({work})
        if not work.cancelled():
            work.result()

    async def _work(self, stop: asyncio.Event) -> None:
        await self._repeat_begun_insert()
        reading = Reading(self._source, self._collector)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reading.run(stop), name="read entries")
            tasks.create_task(self._write_groups(), name="write groups")

    async def _write_groups(self) -> None:
        while (group := await self._collector.next_group()) is not None:
            await patiently(lambda group=group: self._source.keep_manifest(group.manifest()))
            await self._write(group)

    async def _repeat_begun_insert(self) -> None:
        """Finishes the insert that a manifest tells of.

        Commits start only after the insert succeeded and take a shard's entries together. So if
        any entry is gone the insert had happened, and what is left is committed.
        """
        manifest = await self._source.manifest()
        if manifest is None:
            return
        found = await self._source.fetch(manifest.places)
        group = Group(tuple(entry for entry in found if entry is not None))
        logger.info("repeating the insert begun before", extra={"token": manifest.token, "batches": len(found)})
        if len(group.entries) == len(found):
            await self._write(group)
        else:
            await self._forget(group)

    async def _write(self, group: Group) -> None:
        started = time.monotonic()
        body = await asyncio.to_thread(group.body)
        await patiently(lambda: self._insert(body, group))
        await self._forget(group)
        metrics.INSERT_SECONDS.observe(time.monotonic() - started)
        metrics.GROUP_ROWS.observe(group.rows)
        metrics.ROWS_WRITTEN.inc(group.rows)
        oldest_ms = min((int(entry.place.id.split("-")[0]) for entry in group.entries), default=0)
        metrics.STREAM_LAG.set(max(time.time() - oldest_ms / 1_000, 0))

    async def _forget(self, group: Group) -> None:
        await patiently(lambda: self._source.commit(group))
        await patiently(lambda: self._source.keep_manifest(""))

    async def _insert(self, body: bytes, group: Group) -> None:
        started = time.monotonic()
        try:
            await self._sink.write(body, token=group.token)
        except StoreUncertain:
            metrics.INSERTS.labels("uncertain").inc()
            raise
        finally:
            if (took_s := time.monotonic() - started) > SLOW_INSERT_S:
                facts = {"rows": group.rows, "batches": len(group.entries), "payload_bytes": len(body)}
                logger.warning("an insert took %.0f s", took_s, extra=facts)
        metrics.INSERTS.labels("ok").inc()
