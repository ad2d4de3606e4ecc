"""The writer from a real broker to chDB behind HTTP: every batch once, whatever fails on the way."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from pydantic import SecretStr

from rankscope_ingest import moving, writer
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.clickhouse import VIEWS
from rankscope_ingest.clickhouse import Store as Sink
from rankscope_ingest.collector import Collector
from rankscope_ingest.dead_letters import DeadLetters
from rankscope_ingest.entries import Group, take
from rankscope_ingest.errors import StoreUncertain, StoreUnfit
from rankscope_ingest.streams import Streams
from rankscope_proto.identity import shard_of
from tests.ground.brokers import Broker
from tests.ground.stores import Store
from tests.ingest.batches import Sender
from tests.ingest.looking import is_drained, without_disk
from tests.ingest.waiting import eventually
from tests.ingest.writing import ROWS, Leased, counts, exactly, offer_of, running, send, settings_for


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
    stand = await buffer.accept(shard_of("run", sender.incarnation), offer_of(again), budget=10**9)

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


class Counting:
    """A sink over the store that remembers what it was given, and whose first inserts may fail.

    Attributes:
        tried: Token and body of every insert.
    """

    def __init__(self, sink: Sink | None, *, failures: int = 0, after: bool = False) -> None:
        self.tried: list[tuple[str, bytes]] = []
        self._sink = sink
        self._failures = failures
        self._after = after

    async def write(
        self, body: bytes, *, token: str, settings: Mapping[str, str | int] | None = None, table: str = "landing"
    ) -> None:
        self.tried.append((token, body))
        is_failing = len(self.tried) <= self._failures
        if self._sink is not None and (self._after or not is_failing):
            await self._sink.write(body, token=token, settings=settings, table=table)
        if is_failing:
            raise StoreUncertain("the answer was lost")

    async def probe(self, body: bytes) -> None:
        """Takes everything."""

    async def inserts(self) -> frozenset[str]:
        return frozenset()

    async def views(self) -> frozenset[tuple[str, str]]:
        return frozenset((name, "") for name in VIEWS)

    async def rows(self, query: str, **parameters: object) -> Sequence[Sequence[object]]:
        return [] if self._sink is None else await self._sink.rows(query, **parameters)

    async def command(self, statement: str, **parameters: object) -> None:
        if self._sink is not None:
            await self._sink.command(statement, **parameters)


async def drain(broker: Broker, streams: Streams, sink: Counting, *, collector: Collector) -> None:
    """Lets a writer move everything to a sink."""
    letters = DeadLetters(SecretStr(broker.url))
    stop = asyncio.Event()
    moved = asyncio.create_task(writer.Writer(streams, sink, letters=letters, collector=collector).run(stop))
    await eventually(lambda: is_drained(broker), watched=moved)
    stop.set()
    await moved
    await letters.close()


@pytest.mark.parametrize("after", [True, False], ids=["rows there", "no rows"])
async def test_an_uncertain_insert_is_repeated_with_the_same_bytes_and_token(
    buffer: Buffer, broker: Broker, streams: Streams, sink: Sink, clickhouse_front: Store, after: bool
) -> None:
    await send(buffer, Sender(rank=0), Sender(rank=1), count=3)
    interrupted = Counting(sink, failures=2, after=after)

    await drain(broker, streams, interrupted, collector=Collector(rows=6 * ROWS * 2, size=2**25, linger_s=5))

    assert len(set(interrupted.tried)) == 1
    assert len(interrupted.tried) == 3
    assert counts(clickhouse_front) == exactly(6)


async def begun(buffer: Buffer, leased: Leased, count: int) -> Group:
    """A group that was read and whose manifest is kept, as a writer leaves it that ends there."""
    senders = [Sender(rank=rank) for rank in range(count)]
    await send(buffer, *senders, count=2)
    group = take(await leased.read(), rows=10**6, size=10**9)
    await leased.begin(group)
    await send(buffer, *senders)
    return group


@pytest.mark.parametrize("inserted", [True, False], ids=["after the insert", "before the insert"])
async def test_the_successor_of_a_writer_killed_around_its_insert_repeats_it(
    buffer: Buffer, broker: Broker, leased: Leased, sink: Sink, clickhouse_front: Store, inserted: bool
) -> None:
    group = await begun(buffer, leased, 3)
    if inserted:
        await sink.write(group.body(), token=group.token)
    await leased.hold(lifetime_ms=1)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(9)


async def test_the_successor_of_a_writer_killed_between_two_commits_finishes_the_others(
    buffer: Buffer, broker: Broker, leased: Leased, sink: Sink, clickhouse_front: Store
) -> None:
    group = await begun(buffer, leased, 8)
    await sink.write(group.body(), token=group.token)
    await leased.commit(Group(tuple(next(iter(group.by_shard().values())))))
    await leased.hold(lifetime_ms=1)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(24)


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


async def test_groups_stay_within_their_limits_and_in_order(buffer: Buffer, broker: Broker, streams: Streams) -> None:
    await send(buffer, *(Sender(rank=rank) for rank in range(3)), count=10)
    recorded = Counting(None)

    await drain(broker, streams, recorded, collector=Collector(rows=4 * ROWS, size=2**25, linger_s=0.05))

    tokens = [token for token, _ in recorded.tried]
    assert len(tokens) == len(set(tokens))
    assert len(tokens) >= 30 / 4


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
    buffer: Buffer,
    broker: Broker,
    streams: Streams,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(moving, "SLOW_INSERT_S", -1.0)
    await send(buffer, Sender())

    await drain(broker, streams, Counting(None), collector=Collector(rows=100, size=10**6, linger_s=0.0))

    slow = [record for record in caplog.records if record.getMessage() == "an insert took 0 s"]
    assert [vars(record)["rows"] for record in slow] == [ROWS]
