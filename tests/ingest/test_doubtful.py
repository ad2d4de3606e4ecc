"""Batches that may be in the store already: found there, completed there, or inserted, and never doubled."""

import asyncio
from collections.abc import Sequence

import pytest

from rankscope_ingest import moving
from rankscope_ingest.broker_keys import state_key
from rankscope_ingest.buffer import Buffer
from rankscope_ingest.clickhouse import Store as Sink
from rankscope_ingest.entries import Entry, Group, Place, take
from rankscope_ingest.errors import StoreUncertain
from rankscope_ingest.presence import Found, Tables, look
from rankscope_ingest.repair import complete
from rankscope_proto.columns import SECTIONS
from rankscope_proto.identity import shard_of
from rankscope_proto.v1.ingest_pb2 import Sealed
from tests.ground.brokers import Broker
from tests.ground.stores import Store
from tests.ingest.batches import Sender, batch, seal
from tests.ingest.looking import is_drained
from tests.ingest.waiting import eventually
from tests.ingest.writing import Leased, counts, doubled, exactly, full, number, offer, running, send

TARGETS = (*(section.table for section in SECTIONS), "batches", "trace_index")


def entry_of(sender: Sender, *, project: str = "default") -> Entry:
    message = batch(sender.seq, incarnation=sender.incarnation)
    message.header.project = project
    sender.seq += 1
    return entry_for(seal(message))


def entry_for(sealed: Sealed) -> Entry:
    return Entry(Place(0, "1-0"), sealed.payload, sealed.incarnation, sealed.seq, sealed.digest, sealed.rows)


async def test_what_is_in_every_table_is_told_from_what_is_in_some_and_in_none(
    sink: Sink, clickhouse_front: Store
) -> None:
    one, other = Sender(), Sender()
    entries = [entry_of(one), entry_of(one), entry_of(other), entry_of(other, project="it's \\ {p:String} \n'")]
    group = Group((entries[0], entries[1], entries[3]))
    await sink.write(group.body(), token=group.token)
    clickhouse_front.client.command("DELETE FROM scalars WHERE seq = 1 AND project = 'default'")
    unreadable = Entry(Place(0, "2-0"), b"\xff", b"i" * 16, 0, b"d" * 16, 1)

    found = await look(sink, [*entries, unreadable])

    assert found == [Found.ALL, Found.SOME, Found.NONE, Found.ALL, Found.NONE]


async def test_many_doubtful_batches_are_asked_for_in_parts(sink: Sink) -> None:
    entries = [entry_of(Sender()) for _ in range(300)]
    group = Group(tuple(entries[:280]))
    await sink.write(group.body(), token=group.token)

    assert await look(sink, entries) == [Found.ALL] * 280 + [Found.NONE] * 20


async def test_a_half_failed_insert_is_completed_in_each_table(sink: Sink, clickhouse_front: Store) -> None:
    sender = Sender()
    entries = [entry_of(sender) for _ in range(3)]
    entries.append(entry_for(full(sender)))
    group = Group(tuple(entries))
    await sink.write(group.body(), token=group.token)
    expected = everything(clickhouse_front)
    for lacking in (TARGETS[0::2], TARGETS[1::2], ["batches"]):
        for target in lacking:
            clickhouse_front.client.command(f"TRUNCATE TABLE {target}")

        await complete(sink, group)

        assert everything(clickhouse_front) == expected
    assert not doubled(clickhouse_front)
    assert clickhouse_front.client.query("SHOW TABLES LIKE 'landing_repair%'").row_count == 0


async def test_only_what_is_missing_of_a_table_is_added(sink: Sink, clickhouse_front: Store) -> None:
    sender = Sender()
    group = Group(tuple(entry_of(sender) for _ in range(3)))
    await sink.write(group.body(), token=group.token)
    clickhouse_front.client.command("DELETE FROM spans WHERE seq = 1 AND idx = 1")

    await complete(sink, group)

    assert counts(clickhouse_front) == exactly(3)


async def test_batches_that_come_again_are_inserted_only_where_they_are_not_there(
    buffer: Buffer, broker: Broker, clickhouse_front: Store
) -> None:
    sender = Sender()
    async with running(broker, clickhouse_front) as serving:
        sent = await send(buffer, sender, count=4)
        await eventually(lambda: is_drained(broker), watched=serving)
        with broker.client() as client:
            client.flushall()
        for sealed in sent:
            await offer(buffer, sealed, again=True)
        late = sender.next()
        await offer(buffer, late, again=True)
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(5)


async def test_entries_that_a_broker_brings_back_are_not_inserted_twice(
    buffer: Buffer, broker: Broker, leased: Leased, sink: Sink, clickhouse_front: Store
) -> None:
    await send(buffer, Sender(), Sender(), count=3)
    group = take(await leased.read(), rows=10**6, size=10**9)
    await sink.write(group.body(), token=group.token)
    await leased.hold(lifetime_ms=1)  # neither manifest nor commit: the broker lost both

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(6)
    assert not doubled(clickhouse_front)


async def test_a_half_failed_insert_whose_manifest_was_lost_is_completed(
    buffer: Buffer, broker: Broker, leased: Leased, sink: Sink, clickhouse_front: Store
) -> None:
    await send(buffer, Sender(), Sender(), count=3)
    group = take(await leased.read(), rows=10**6, size=10**9)
    await sink.write(group.body(), token=group.token)
    for table in ("spans", "trace_index"):
        clickhouse_front.client.command(f"TRUNCATE TABLE {table}")
    await send(buffer, Sender())
    await leased.hold(lifetime_ms=1)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(7)
    assert not doubled(clickhouse_front)
    assert number(clickhouse_front, "SELECT count() FROM trace_index") > 0


async def test_an_insert_that_begins_while_its_batches_are_looked_for_is_waited_for(
    buffer: Buffer,
    broker: Broker,
    leased: Leased,
    sink: Sink,
    clickhouse_front: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A request of a writer that was killed waits in the socket of a frozen store: no list of inserts has it yet.
    await send(buffer, Sender(), count=3)
    group = take(await leased.read(), rows=10**6, size=10**9)
    await sink.write(group.body(), token=group.token)
    clickhouse_front.client.command("TRUNCATE TABLE spans")
    await leased.hold(lifetime_ms=1)
    begun: list[asyncio.Task[None]] = []

    is_noticed = asyncio.Event()

    async def late() -> None:
        await is_noticed.wait()
        await sink.write(group.body(), token=group.token)

    async def inserts(store: Sink) -> frozenset[str]:
        del store
        if begun:
            is_noticed.set()
            await begun[0]
        return frozenset()

    async def looking(tables: Tables, entries: Sequence[Entry]) -> list[Found]:
        found = await look(tables, entries)
        if Found.SOME in found and not begun:
            begun.append(asyncio.create_task(late()))
        return found

    monkeypatch.setattr(moving, "look", looking)
    monkeypatch.setattr(Sink, "inserts", inserts)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)
    is_noticed.set()
    await asyncio.gather(*begun)

    assert len(begun) == 1
    assert counts(clickhouse_front) == exactly(3)
    assert not doubled(clickhouse_front)


async def test_an_insert_that_a_table_only_remembers_is_completed(
    buffer: Buffer, broker: Broker, clickhouse_front: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A store that was killed between a table's token and its rows takes the same insert again, and does nothing.
    write, failed = Sink.write, list[str]()

    async def killed_within(store: Sink, body: bytes, *, token: str, **more: object) -> None:
        await write(store, body, token=token, **more)  # pyright: ignore[reportArgumentType]  # as they came
        if not failed and not more.get("table"):
            failed.append(token)
            clickhouse_front.client.command("DELETE FROM scalars WHERE true")
            raise StoreUncertain("the store was killed")

    monkeypatch.setattr(Sink, "write", killed_within)

    async with running(broker, clickhouse_front) as serving:
        await send(buffer, Sender(), count=3)
        await eventually(lambda: is_drained(broker), watched=serving)

    assert failed
    assert counts(clickhouse_front) == exactly(3)
    assert not doubled(clickhouse_front)


async def test_what_a_successor_repeats_is_completed_where_a_table_only_remembers_it(
    buffer: Buffer, broker: Broker, leased: Leased, sink: Sink, clickhouse_front: Store
) -> None:
    await send(buffer, Sender(), Sender(), count=3)
    group = take(await leased.read(), rows=10**6, size=10**9)
    await leased.begin(group)
    await sink.write(group.body(), token=group.token)
    clickhouse_front.client.command("DELETE FROM spans WHERE true")
    await leased.hold(lifetime_ms=1)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(6)
    assert not doubled(clickhouse_front)


async def test_one_batch_twice_in_a_stream_is_inserted_once(
    buffer: Buffer, broker: Broker, clickhouse_front: Store
) -> None:
    sent = await send(buffer, Sender(), count=2)
    with broker.client() as client:
        for sealed in sent:  # the broker forgot its sender and kept the stream
            client.delete(state_key(shard_of("run", sealed.incarnation), sealed.incarnation))
    for sealed in sent:
        await offer(buffer, sealed, again=True)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(2)


def everything(store: Store) -> dict[str, list[object]]:
    """The rows of every table."""
    return {
        table: [str(row) for row in store.client.query(f"SELECT * FROM {table} FINAL ORDER BY ALL").result_rows]
        if table == "trace_index"
        else [str(row) for row in store.client.query(f"SELECT * FROM {table} ORDER BY ALL").result_rows]
        for table in TARGETS
    }
