"""The writer from a real broker to chDB behind HTTP: every batch once, whatever fails on the way."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from rankscope_ingest import writer
from rankscope_ingest.buffer import WRITER_CLAIM, Buffer, Claimant, Offer
from rankscope_ingest.clickhouse import Store as Sink
from rankscope_ingest.collector import Collector
from rankscope_ingest.entries import Group, take
from rankscope_ingest.errors import StoreUncertain, StoreUnfit
from rankscope_ingest.migrate import migrate
from rankscope_ingest.patience import patiently
from rankscope_proto.identity import shard_of
from tests.ground.brokers import Broker
from tests.ground.stores import Store
from tests.ingest.batches import Sender
from tests.ingest.looking import is_drained, without_disk
from tests.ingest.waiting import eventually

ROWS = 6
"""Rows of one batch: 2 spans, 3 statistics, 1 scalar."""


async def send(buffer: Buffer, *senders: Sender, count: int = 1) -> None:
    """Lets each sender have `count` batches accepted."""
    for sender in senders:
        for _ in range(count):
            sealed = sender.next()
            offer = Offer(
                sealed.payload, sealed.incarnation, sealed.seq, sealed.digest, sealed.rows, sealed.week, sealed.base
            )
            shard = shard_of(sender.run_id, sender.incarnation)
            await patiently(lambda shard=shard, offer=offer: buffer.accept(shard, offer, budget=10**9))


def settings_for(broker: Broker, store: Store, **more: str) -> dict[str, str]:
    return {
        "RANKSCOPE_REDIS_URL": broker.url,
        "RANKSCOPE_CLICKHOUSE_URL": store.url,
        "RANKSCOPE_MIGRATE": "1",
        "RANKSCOPE_LINGER_MS": "50",
        **more,
    }


@asynccontextmanager
async def running(broker: Broker, store: Store) -> AsyncGenerator[asyncio.Task[None]]:
    """A writer between the two."""
    stop = asyncio.Event()
    serving = asyncio.create_task(writer.serve(settings_for(broker, store), stop))
    try:
        yield serving
    finally:
        stop.set()
        await asyncio.wait_for(serving, 60)


def counts(store: Store) -> dict[str, tuple[int, ...]]:
    """Table -> (rows, distinct row keys)."""
    return {
        table: tuple(
            store.client.query(f"SELECT count(), uniqExact(incarnation, seq, idx) FROM {table}").result_rows[0]
        )
        for table in ("spans", "tensor_stats", "scalars")
    }


def exactly(batches: int) -> dict[str, tuple[int, ...]]:
    return {
        table: (rows * batches, rows * batches) for table, rows in (("spans", 2), ("tensor_stats", 3), ("scalars", 1))
    }


async def test_accepted_batches_become_rows_once(buffer: Buffer, broker: Broker, clickhouse_front: Store) -> None:
    senders = [Sender(rank=rank) for rank in range(4)]
    await send(buffer, *senders, count=5)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)
        await send(buffer, *senders, count=2)
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(28)
    ledger = clickhouse_front.client.query("SELECT sum(rows_spans), sum(rows_tensor_stats), count() FROM batches")
    assert ledger.first_row == (56, 84, 28)


async def test_the_durable_watermark_follows(buffer: Buffer, broker: Broker, clickhouse_front: Store) -> None:
    sender = Sender()
    await send(buffer, sender, count=3)
    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    again = Sender(incarnation=sender.incarnation).next()
    offer = Offer(again.payload, again.incarnation, 0, again.digest, 6, again.week, 0)
    stand = await buffer.accept(shard_of("run", sender.incarnation), offer, budget=10**9)

    assert (stand.accepted, stand.durable) == (3, 3)


async def test_what_was_accepted_while_no_writer_ran_is_written(
    buffer: Buffer, broker: Broker, clickhouse_front: Store
) -> None:
    await send(buffer, Sender(), count=3)
    broker.kill_once_written()
    broker.start()

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(3)


class Interrupted:
    """A sink whose first inserts fail, before or after the rows are there."""

    def __init__(self, sink: Sink, *, failures: int, after: bool) -> None:
        self.tried: list[tuple[str, bytes]] = []
        self._sink = sink
        self._failures = failures
        self._after = after

    async def write(self, body: bytes, *, token: str) -> None:
        self.tried.append((token, body))
        is_failing = len(self.tried) <= self._failures
        if self._after or not is_failing:
            await self._sink.write(body, token=token)
        if is_failing:
            raise StoreUncertain("the answer was lost")


@pytest.fixture
async def sink(clickhouse_front: Store) -> AsyncIterator[Sink]:
    """The store as the writer has it, migrated."""
    opened = Sink(SecretStr(clickhouse_front.url))
    await migrate(opened)
    yield opened
    await opened.close()


@pytest.mark.parametrize("after", [True, False], ids=["rows there", "no rows"])
async def test_an_uncertain_insert_is_repeated_with_the_same_bytes_and_token(
    buffer: Buffer, broker: Broker, sink: Sink, clickhouse_front: Store, after: bool
) -> None:
    await buffer.prepare_reading()
    await send(buffer, Sender(rank=0), Sender(rank=1), count=3)
    interrupted = Interrupted(sink, failures=2, after=after)
    stop = asyncio.Event()

    one_group = Collector(rows=6 * ROWS * 2, size=2**25, linger_s=5)
    moving = asyncio.create_task(writer.Writer(buffer, interrupted, collector=one_group).run(stop))
    await eventually(lambda: is_drained(broker), watched=moving)
    stop.set()
    await moving

    assert len(set(interrupted.tried)) == 1
    assert len(interrupted.tried) == 3
    assert counts(clickhouse_front) == exactly(6)


async def begun(buffer: Buffer, count: int) -> Group:
    """A group that was read and whose manifest is kept, as a killed writer leaves it."""
    await buffer.prepare_reading()
    senders = [Sender(rank=rank) for rank in range(count)]
    await send(buffer, *senders, count=2)
    group = take(await buffer.read(count=10, block_ms=100), rows=10**6, size=10**9)
    await buffer.keep_manifest(group.manifest())
    await send(buffer, *senders)
    return group


@pytest.mark.parametrize("inserted", [True, False], ids=["after the insert", "before the insert"])
async def test_a_writer_killed_around_its_insert_repeats_it(
    buffer: Buffer, broker: Broker, sink: Sink, clickhouse_front: Store, inserted: bool
) -> None:
    group = await begun(buffer, 3)
    if inserted:
        await sink.write(group.body(), token=group.token)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(9)
    assert await buffer.manifest() is None


async def test_a_writer_killed_between_two_commits_finishes_the_others(
    buffer: Buffer, broker: Broker, sink: Sink, clickhouse_front: Store
) -> None:
    group = await begun(buffer, 8)
    await sink.write(group.body(), token=group.token)
    first_shard = next(iter(group.by_shard().values()))
    await buffer.commit(Group(tuple(first_shard)))

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(24)


async def test_a_writer_killed_before_its_manifest_writes_what_it_had_read(
    buffer: Buffer, broker: Broker, clickhouse_front: Store
) -> None:
    await begun(buffer, 3)
    await buffer.keep_manifest("")

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(9)


async def test_a_broker_that_restarts_under_the_writer_loses_nothing(
    buffer: Buffer, broker: Broker, clickhouse_front: Store
) -> None:
    sender = Sender()
    await send(buffer, sender, count=2)
    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)
        broker.kill_once_written()
        broker.start()
        await send(buffer, sender, count=2)
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(4)


async def test_a_broker_whose_disk_is_full_for_a_while_is_waited_for(
    buffer: Buffer, broker: Broker, clickhouse_front: Store, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender()
    async with running(broker, clickhouse_front) as serving:
        await send(buffer, sender, count=2)
        await eventually(lambda: is_drained(broker), watched=serving)
        with without_disk(broker):
            await eventually(lambda: "cannot write to its disk" in caplog.text, watched=serving)
        await send(buffer, sender, count=2)
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(4)


async def test_groups_stay_within_their_limits_and_in_order(buffer: Buffer, broker: Broker) -> None:
    await buffer.prepare_reading()
    await send(buffer, *(Sender(rank=rank) for rank in range(3)), count=10)
    recorded = Recorded()
    stop = asyncio.Event()
    small = Collector(rows=4 * ROWS, size=2**25, linger_s=0.05)

    moving = asyncio.create_task(writer.Writer(buffer, recorded, collector=small).run(stop))
    await eventually(lambda: is_drained(broker), watched=moving)
    stop.set()
    await moving

    assert len(recorded.tokens) == len(set(recorded.tokens))
    assert len(recorded.tokens) >= 30 / 4


class Recorded:
    """A sink that only remembers the tokens."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    async def write(self, body: bytes, *, token: str) -> None:
        self.tokens.append(token)


async def test_a_second_writer_waits_while_the_first_holds_the_shards(
    buffer: Buffer, broker: Broker, clickhouse_front: Store
) -> None:
    elsewhere = Claimant(b"other", b'{"node":"n","place":"elsewhere","pid":1,"id":"other"}', b"")
    await buffer.claim(WRITER_CLAIM, elsewhere, lifetime_ms=60_000)
    await send(buffer, Sender())

    async with running(broker, clickhouse_front) as serving:
        await asyncio.sleep(0)
        assert not is_drained(broker)
        await buffer.release(WRITER_CLAIM, holder=b"other")
        await eventually(lambda: is_drained(broker), watched=serving)

    assert await buffer.claim_holder(WRITER_CLAIM) is None
    assert counts(clickhouse_front) == exactly(1)


async def test_a_writer_refuses_a_store_that_is_not_migrated(broker: Broker, clickhouse_front: Store) -> None:
    with pytest.raises(StoreUnfit, match="rankscope migrate"):
        await writer.serve(settings_for(broker, clickhouse_front, RANKSCOPE_MIGRATE="0"), asyncio.Event())


async def test_a_writer_refuses_a_table_without_a_deduplication_window(
    broker: Broker, sink: Sink, clickhouse_front: Store
) -> None:
    await sink.command("ALTER TABLE spans MODIFY SETTING non_replicated_deduplication_window = 0")

    with pytest.raises(StoreUnfit, match="no deduplication window on spans"):
        await writer.serve(settings_for(broker, clickhouse_front), asyncio.Event())


async def test_an_insert_that_takes_long_is_logged(
    buffer: Buffer, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "SLOW_INSERT_S", -1.0)
    await buffer.prepare_reading()
    await send(buffer, Sender())
    stop = asyncio.Event()
    collector = Collector(rows=100, size=10**6, linger_s=0.0)

    moving = asyncio.create_task(writer.Writer(buffer, Recorded(), collector=collector).run(stop))
    await eventually(lambda: is_drained(broker), watched=moving)
    stop.set()
    await moving

    slow = [record for record in caplog.records if record.getMessage() == "an insert took 0 s"]
    assert [vars(record)["rows"] for record in slow] == [ROWS]
