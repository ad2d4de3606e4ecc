"""A batch that the store cannot parse among good ones: set aside, stated as a gap, its neighbours stored."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from pydantic import SecretStr

from rankscope_ingest.buffer import Buffer
from rankscope_ingest.clickhouse import Store as Sink
from rankscope_ingest.dead_letters import DeadLetters, Stage
from rankscope_ingest.entries import Entry, Group, Place, take
from rankscope_ingest.errors import StoreUncertain
from rankscope_ingest.quarantine import BRAKE_WINDOW_S, Brake, find_bad, gap_in_place_of
from rankscope_proto.identity import shard_of
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Sealed
from tests.ground.brokers import Broker
from tests.ground.stores import Store
from tests.ingest.batches import Sender, batch, seal, seal_bytes
from tests.ingest.looking import is_drained
from tests.ingest.waiting import eventually
from tests.ingest.writing import Leased, counts, doubled, exactly, number, offer, running, send

GAPS = """
SELECT cause, data_kind, count, seq_from, seq_to, hex(toFixedString(concat(
    reverse(reinterpretAsFixedString(assumeNotNull(incarnation_hi))),
    reverse(reinterpretAsFixedString(assumeNotNull(incarnation_lo)))), 16)), rank, process_role
FROM gaps ORDER BY data_kind
"""


@pytest_asyncio.fixture
async def letters(broker: Broker) -> AsyncIterator[DeadLetters]:
    opened = DeadLetters(SecretStr(broker.url))
    yield opened
    await opened.close()


def poisoned(sender: Sender) -> Sealed:
    """The sender's next batch with a launch id that no column holds."""
    message = batch(sender.seq, incarnation=sender.incarnation, rank=sender.rank)
    sender.seq += 1
    message.header.launch_id = b"x" * 17
    return seal(message)


def garbage(sender: Sender) -> Sealed:
    """What is no batch at all, under the sender's next seq."""
    message = batch(sender.seq, incarnation=sender.incarnation, rank=sender.rank)
    sender.seq += 1
    return seal_bytes(b"\xff" * 40, message)


async def test_a_poisoned_batch_is_set_aside_and_its_neighbours_are_stored(
    buffer: Buffer, broker: Broker, letters: DeadLetters, clickhouse_front: Store
) -> None:
    sender, other = Sender(rank=1), Sender(rank=2)
    await send(buffer, sender, other, count=3)
    bad = poisoned(sender)
    await offer(buffer, bad)
    await send(buffer, sender, other, count=2)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    ((letter_id, letter),) = await letters.page()
    assert counts(clickhouse_front) == exactly(10)
    assert (letter.payload, letter.incarnation, letter.seq, letter.stage) == (
        bad.payload,
        bad.incarnation,
        bad.seq,
        Stage.PARSE,
    )
    assert (letter.code, letter.week, letter_id != "") == (131, bad.week, True)
    incarnation = bad.incarnation.hex().upper()
    assert clickhouse_front.client.query(GAPS).result_rows == [
        ("quarantined", "scalars", 1, 3, 3, incarnation, 1, 4),
        ("quarantined", "spans", 2, 3, 3, incarnation, 1, 4),
        ("quarantined", "tensor_stats", 3, 3, 3, incarnation, 1, 4),
    ]
    last = (await send(buffer, sender))[0]
    assert last.seq == 6


async def test_the_watermark_of_a_poisoned_sender_goes_on(
    buffer: Buffer, broker: Broker, clickhouse_front: Store
) -> None:
    sender = Sender()
    await offer(buffer, poisoned(sender))
    await send(buffer, sender, count=2)
    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    (stand,) = await buffer.stands(shard_of("run", sender.incarnation), [sender.incarnation])
    assert (stand.accepted, stand.durable) == (3, 3)


async def test_what_is_no_batch_at_all_is_set_aside_without_a_gap(
    buffer: Buffer, broker: Broker, letters: DeadLetters, clickhouse_front: Store
) -> None:
    sender = Sender()
    await send(buffer, sender)
    await offer(buffer, garbage(sender))
    await send(buffer, sender)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(2)
    assert len(await letters.page()) == 1
    assert number(clickhouse_front, "SELECT count() FROM gaps") == 0


async def test_a_gap_that_cannot_be_stored_either_holds_nothing_up(
    buffer: Buffer, broker: Broker, letters: DeadLetters, sink: Sink, clickhouse_front: Store
) -> None:
    for table in ("landing", "landing_probe"):
        await sink.command(f"ALTER TABLE {table} MODIFY COLUMN header_node FixedString(3)")
    await send(buffer, Sender())

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert len(await letters.page()) == 1
    assert number(clickhouse_front, "SELECT count() FROM gaps") == 0


async def test_a_full_broker_lets_a_poisoned_batch_leave(
    buffer: Buffer, broker: Broker, letters: DeadLetters, clickhouse_front: Store
) -> None:
    sender = Sender()
    await offer(buffer, poisoned(sender))
    await send(buffer, sender)
    with broker.client() as client:
        client.config_set("maxmemory", "1")

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert counts(clickhouse_front) == exactly(1)
    assert number(clickhouse_front, "SELECT sum(count) FROM gaps") == 6


async def test_a_gap_begun_by_a_writer_that_ended_is_stated_once(
    buffer: Buffer, broker: Broker, leased: Leased, sink: Sink, clickhouse_front: Store
) -> None:
    sender = Sender()
    await send(buffer, sender)
    await offer(buffer, poisoned(sender))
    good, bad = take(await leased.read(), rows=10**6, size=10**9).entries
    gap = gap_in_place_of(bad)
    assert gap is not None
    group = Group((good, gap))
    await leased.begin(group)
    await sink.write(group.body(), token=group.token)
    await leased.hold(lifetime_ms=1)

    async with running(broker, clickhouse_front) as serving:
        await eventually(lambda: is_drained(broker), watched=serving)

    assert number(clickhouse_front, "SELECT sum(count) FROM gaps") == 6
    assert counts(clickhouse_front) == exactly(1)
    assert not doubled(clickhouse_front)


def entries(*payloads: bytes) -> list[Entry]:
    return [Entry(Place(0, f"{n}-0"), payload, b"i" * 16, n, b"d" * 16, 1) for n, payload in enumerate(payloads)]


async def test_bad_batches_are_found_wherever_they_are(sink: Sink) -> None:
    good, bad = batch().SerializeToString(), b"\xff" * 9

    cases: tuple[set[int], ...] = (set(), {2, 3}, {0, 6})
    for at in cases:
        found = await find_bad(sink, entries(*(bad if n in at else good for n in range(7))))
        assert {entry.seq for entry in found} == at


async def test_a_store_that_parses_nothing_condemns_no_batch(sink: Sink, clickhouse_front: Store) -> None:
    clickhouse_front.client.command("ALTER TABLE landing_probe MODIFY COLUMN header_launch_id UUID")

    with pytest.raises(StoreUncertain):
        await find_bad(sink, entries(batch().SerializeToString()))


def test_a_gap_is_the_same_whenever_it_is_made() -> None:
    sealed = poisoned(Sender())
    entry = Entry(Place(3, "5-1"), sealed.payload, sealed.incarnation, sealed.seq, sealed.digest, sealed.rows)

    first, second = gap_in_place_of(entry), gap_in_place_of(entry)

    assert first is not None
    assert second is not None
    assert (first.payload, first.incarnation, first.accepted) == (second.payload, second.incarnation, entry)
    header = Batch.FromString(first.payload).header
    assert (header.emitted_gaps, header.seq, header.incarnation, header.process_role) == (3, 0, first.incarnation, 4)


def test_more_than_a_few_bad_batches_are_the_stores_fault_until_time_has_passed() -> None:
    now = [1_000.0]
    brake = Brake(lambda: now[0])
    brake.note(stored=5_000)
    brake.check(100)
    brake.note(bad=100)
    with pytest.raises(StoreUncertain, match="101 of the 5101 batches"):
        brake.check(1)

    brake.note(stored=15_000)
    brake.check(101)
    now[0] += BRAKE_WINDOW_S + 1

    brake.check(100)
    with pytest.raises(StoreUncertain):
        brake.check(101)
