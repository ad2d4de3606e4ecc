"""The writer's side of a broker and a store, as tests use it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from rankscope_ingest import writer
from rankscope_ingest.buffer import Buffer, Offer
from rankscope_ingest.entries import Entry, Group
from rankscope_ingest.patience import patiently
from rankscope_ingest.streams import Streams, Writer
from rankscope_proto.columns import SECTIONS
from rankscope_proto.identity import SHARDS, shard_of
from rankscope_proto.storage import INSERT_SETTINGS
from rankscope_proto.v1.ingest_pb2 import Sealed
from tests.ground.brokers import Broker
from tests.ground.stores import Store
from tests.ingest.batches import Sender, batch, seal

ROWS = 6
"""Rows of one batch: 2 spans, 3 statistics, 1 scalar."""
TABLES = {"spans": 2, "tensor_stats": 3, "scalars": 1}
"""Rows of one batch in each table that it fills."""
EVERY_SHARD = dict.fromkeys(range(SHARDS), "0-0")
"""From where reading every shard begins."""


def offer_of(sealed: Sealed, *, again: bool = False) -> Offer:
    return Offer(
        sealed.payload,
        sealed.incarnation,
        sealed.seq,
        sealed.digest,
        sealed.rows,
        sealed.week,
        sealed.base,
        again=again,
    )


async def send(buffer: Buffer, *senders: Sender, count: int = 1) -> list[Sealed]:
    """Lets each sender have `count` batches accepted; gives them."""
    sent: list[Sealed] = []
    for sender in senders:
        for _ in range(count):
            sent.append(sender.next())
            await offer(buffer, sent[-1], run_id=sender.run_id)
    return sent


async def offer(buffer: Buffer, sealed: Sealed, *, run_id: str = "run", again: bool = False) -> None:
    shard = shard_of(run_id, sealed.incarnation)
    await patiently(lambda: buffer.accept(shard, offer_of(sealed, again=again), budget=10**9))


def full(sender: Sender) -> Sealed:
    """The sender's next batch, with rows in every section."""
    message = batch(sender.seq, incarnation=sender.incarnation, rank=sender.rank, run_id=sender.run_id)
    sender.seq += 1
    now = message.header.sealed
    message.modules.path.append(4)
    message.modules.time.append(now)
    message.events.time.append(now)
    message.events.kind.append(1)
    getattr(message.gaps, "class").append(2)
    message.gaps.start.append(now)
    message.run_info.status.append(1)
    message.run_info.start.append(now)
    message.open_spans.heartbeat.append(time.time_ns())  # older ones expire
    message.open_spans.thread.append(1)
    message.hits.time.append(now)
    message.captures.name.append(4)
    message.captures.time.append(now)
    message.captures.data.append(b"\x00\xff")
    message.collectives.entry.append(now)
    message.clocks.time.append(now)
    message.system_stats.name.append(4)
    message.system_stats.time.append(now)
    message.standings.time.append(time.time_ns())
    return seal(message)


def settings_for(broker: Broker, store: Store, **more: str) -> dict[str, str]:
    return {
        "RANKSCOPE_REDIS_URL": broker.url,
        "RANKSCOPE_CLICKHOUSE_URL": store.url,
        "RANKSCOPE_MIGRATE": "1",
        "RANKSCOPE_LINGER_MS": "50",
        **more,
    }


@asynccontextmanager
async def running(broker: Broker, store: Store, **settings: str) -> AsyncGenerator[asyncio.Task[None]]:
    """A writer between the two."""
    stop = asyncio.Event()
    serving = asyncio.create_task(writer.serve(settings_for(broker, store, **settings), stop))
    try:
        yield serving
    finally:
        stop.set()
        await asyncio.wait_for(serving, 150)


def counts(store: Store) -> dict[str, tuple[int, ...]]:
    """Table -> (rows, distinct row keys)."""
    return {
        table: tuple(
            store.client.query(f"SELECT count(), uniqExact(incarnation, seq, idx) FROM {table}").result_rows[0]
        )
        for table in TABLES
    }


def exactly(batches: int) -> dict[str, tuple[int, ...]]:
    return {table: (rows * batches, rows * batches) for table, rows in TABLES.items()}


def doubled(store: Store) -> dict[str, int]:
    """Rows that are there more than once, by table, those without any left out."""
    keys = {section.table: "incarnation, seq, idx" for section in SECTIONS} | {"batches": "incarnation, seq"}
    found = {table: number(store, f"SELECT count() - uniqExact({key}) FROM {table}") for table, key in keys.items()}
    return {table: count for table, count in found.items() if count}


def number(store: Store, query: str) -> int:
    """The one number that a query gives."""
    return int(store.client.query(query).result_rows[0][0])


class Leased:
    """A writer that holds every shard and does one thing after the other."""

    def __init__(self, streams: Streams, *, name: str = "a-writer") -> None:
        self.streams = streams
        self.name = name
        self.fences: dict[int, int] = {}

    async def hold(self, *, dead: Sequence[str] = (), lifetime_ms: int = 60_000) -> None:
        """Takes what is free."""
        found = await self.streams.lease(
            Writer(self.name, b'{"id":"%s","place":"elsewhere","pid":1,"start":""}' % self.name.encode()),
            lifetime_ms=lifetime_ms,
            broker=await self.streams.broker(),
            dead=dead,
        )
        self.fences = {shard: lease.fence for shard, lease in enumerate(found.shards) if lease.fence}

    async def read(self) -> list[Entry]:
        """Everything in the streams."""
        return await self.streams.read(EVERY_SHARD, count=1000, block_ms=100)

    async def begin(self, group: Group) -> None:
        """Keeps a group's manifest."""
        await self.streams.keep_manifest(self.name, group, fences=self.fences, settings=INSERT_SETTINGS)

    async def commit(self, group: Group) -> int:
        """Commits a group; incarnations set back."""
        return sum(
            [
                await self.streams.commit(self.name, shard, entries=entries, fence=self.fences[shard])
                for shard, entries in group.by_shard().items()
            ]
        )
