"""Accepting what may have been accepted before, and where a sender stands, after the broker lost something."""

import pytest

from rankscope_ingest.broker_keys import state_key, stream_key
from rankscope_ingest.buffer import Accepted, Buffer, Offer, Outcome, Stand
from tests.ground.brokers import Broker
from tests.ingest.looking import entries_in, keys_without_expiry

INCARNATION, OTHER = b"0123456789abcdef", b"fedcba9876543210"
SHARD = 3
BUDGET = 10**9


def offer(seq: int, *, base: int = 0, again: bool = False, sender: bytes = INCARNATION, spare: bytes = b"") -> Offer:
    digest = spare or seq.to_bytes(16, "big")
    return Offer(b"payload", sender, seq, digest, 2, 20_000, base, 0, again)


async def accept_many(buffer: Buffer, count: int, *, sender: bytes = INCARNATION) -> None:
    for seq in range(count):
        await buffer.accept(SHARD, offer(seq, sender=sender), budget=BUDGET)


def say_durable(broker: Broker, durable: int, *, sender: bytes = INCARNATION) -> None:
    """What the writer's commit leaves in the state."""
    with broker.client() as client:
        client.hset(state_key(SHARD, sender), "durable", str(durable))


def seen(stand: Accepted) -> tuple[Outcome, int, int]:
    return stand.outcome, stand.accepted, stand.durable


async def test_an_entry_says_whether_it_may_have_been_accepted_before(buffer: Buffer, broker: Broker) -> None:
    await buffer.accept(SHARD, offer(0), budget=BUDGET)
    await buffer.accept(SHARD, offer(1, again=True), budget=BUDGET)

    assert [entry[b"again"] for entry in entries_in(broker, SHARD)] == [b"0", b"1"]


async def test_what_is_durable_was_accepted_also_where_the_state_was_lost(buffer: Buffer, broker: Broker) -> None:
    say_durable(broker, 5)

    below, at, ahead = [await buffer.accept(SHARD, offer(seq, again=True), budget=BUDGET) for seq in (3, 5, 9)]

    assert seen(below) == (Outcome.DUPLICATE, 5, 5)
    assert seen(at) == (Outcome.ACCEPTED, 6, 5)
    assert seen(ahead) == (Outcome.EXPECTED, 6, 5)


async def test_a_flushed_broker_takes_up_a_sender_at_its_base(buffer: Buffer, broker: Broker) -> None:
    await accept_many(buffer, 5)
    with broker.client() as client:
        client.flushall()

    stand = await buffer.stands(SHARD, [INCARNATION])
    taken_up = await buffer.accept(SHARD, offer(3, base=3, again=True), budget=BUDGET)

    assert stand == [Stand(0, 0)]
    assert seen(taken_up) == (Outcome.ACCEPTED, 4, 0)


class TestAnEntryIsLost:
    """The stream loses entries while the watermark stays, as DEL or XTRIM by hand would do."""

    async def test_it_enters_once_more_when_it_is_asked_for_again(self, buffer: Buffer, broker: Broker) -> None:
        await accept_many(buffer, 4)
        with broker.client() as client:
            client.xtrim(stream_key(SHARD), maxlen=2, approximate=False)

        stands = [await buffer.accept(SHARD, offer(seq, again=True), budget=BUDGET) for seq in (0, 1, 2, 0)]

        accepted, duplicate = Outcome.ACCEPTED, Outcome.DUPLICATE
        assert [stand.outcome for stand in stands] == [accepted, accepted, duplicate, duplicate]
        assert {stand.accepted for stand in stands} == {4}
        assert [entry[b"seq"] for entry in entries_in(broker, SHARD)] == [b"2", b"3", b"0", b"1"]

    async def test_it_stays_a_duplicate_for_a_sender_that_does_not_ask(self, buffer: Buffer, broker: Broker) -> None:
        await accept_many(buffer, 2)
        with broker.client() as client:
            client.delete(stream_key(SHARD))

        assert (await buffer.accept(SHARD, offer(0), budget=BUDGET)).outcome is Outcome.DUPLICATE

    async def test_what_is_durable_never_enters_again(self, buffer: Buffer, broker: Broker) -> None:
        await accept_many(buffer, 2)
        say_durable(broker, 1)
        with broker.client() as client:
            client.delete(stream_key(SHARD))

        stands = [await buffer.accept(SHARD, offer(seq, again=True), budget=BUDGET) for seq in (0, 1)]

        assert [stand.outcome for stand in stands] == [Outcome.DUPLICATE, Outcome.ACCEPTED]

    async def test_another_payload_is_a_conflict_all_the_same(self, buffer: Buffer, broker: Broker) -> None:
        await accept_many(buffer, 2)
        with broker.client() as client:
            client.delete(stream_key(SHARD))

        other = await buffer.accept(SHARD, offer(1, again=True, spare=b"o" * 16), budget=BUDGET)

        assert other.outcome is Outcome.CONFLICT

    async def test_a_full_shard_asks_to_wait_with_that_batch(self, buffer: Buffer, broker: Broker) -> None:
        await accept_many(buffer, 3)
        with broker.client() as client:
            client.xtrim(stream_key(SHARD), maxlen=1, approximate=False)

        full = await buffer.accept(SHARD, offer(0, again=True), budget=8)

        assert (full.outcome, full.accepted) == (Outcome.NO_ROOM, 0)

    @pytest.mark.parametrize("again", [False, True])
    async def test_a_spent_budget_comes_back_with_the_stream_that_held_it(
        self, buffer: Buffer, broker: Broker, again: bool
    ) -> None:
        await accept_many(buffer, 3)
        full = await buffer.accept(SHARD, offer(3), budget=21)
        with broker.client() as client:
            client.delete(stream_key(SHARD))

        after = await buffer.accept(SHARD, offer(0 if again else 3, again=again), budget=21)

        assert full.outcome is Outcome.NO_ROOM
        assert (after.outcome, after.held, await buffer.held(SHARD)) == (Outcome.ACCEPTED, 7, 7)

    async def test_one_too_old_to_be_remembered_enters_again_once_nothing_so_old_is_left(
        self, buffer: Buffer, broker: Broker
    ) -> None:
        await accept_many(buffer, 200)
        still_there = await buffer.accept(SHARD, offer(0, again=True), budget=BUDGET)
        with broker.client() as client:
            client.xtrim(stream_key(SHARD), maxlen=100, approximate=False)

        stands = [await buffer.accept(SHARD, offer(seq, again=True), budget=BUDGET) for seq in (0, 99, 100)]

        assert still_there.outcome is Outcome.DUPLICATE
        assert [stand.outcome for stand in stands] == [Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.DUPLICATE]

    @pytest.mark.parametrize(("left", "durable"), [(0, 0), (0, 2), (1, 0), (150, 0), (150, 50), (50, 100)])
    async def test_its_sender_is_told_to_go_on_from_what_is_durable(
        self, buffer: Buffer, broker: Broker, left: int, durable: int
    ) -> None:
        await accept_many(buffer, 200)
        say_durable(broker, durable)
        before = await buffer.stands(SHARD, [INCARNATION])
        with broker.client() as client:
            client.xtrim(stream_key(SHARD), maxlen=left, approximate=False)

        after = await buffer.stands(SHARD, [INCARNATION])

        # The last 128 batches are remembered: 50 that are gone before them are known to be once they are gone, too.
        is_known_as_lost = (left, durable) not in {(150, 0), (150, 50)}
        assert before == [Stand(200, durable)]
        assert after == [Stand(durable if is_known_as_lost else 200, durable)]


async def test_senders_hear_where_they_stand_in_the_order_asked(buffer: Buffer, broker: Broker) -> None:
    await accept_many(buffer, 3)
    say_durable(broker, 2)
    await accept_many(buffer, 1, sender=OTHER)

    stands = await buffer.stands(SHARD, [OTHER, b"nobody" + bytes(10), INCARNATION])

    assert stands == [Stand(1, 0), Stand(0, 0), Stand(3, 2)]


async def test_a_full_broker_still_says_where_a_sender_stands(buffer: Buffer, broker: Broker) -> None:
    await accept_many(buffer, 1)
    with broker.client() as client:
        client.config_set("maxmemory", "1")

    assert await buffer.stands(SHARD, [INCARNATION]) == [Stand(1, 0)]


async def test_nothing_is_called_durable_of_an_incarnation_that_two_senders_share(
    buffer: Buffer, broker: Broker
) -> None:
    await accept_many(buffer, 2)
    await buffer.accept(SHARD, offer(50, base=50), budget=BUDGET)
    say_durable(broker, 51)
    alone = await buffer.stands(SHARD, [INCARNATION])
    await buffer.accept(SHARD, offer(2), budget=BUDGET)

    assert alone == [Stand(51, 51)]
    assert await buffer.stands(SHARD, [INCARNATION]) == [Stand(51, 0)]


@pytest.mark.parametrize("times", [1, 2])
async def test_the_self_test_leaves_nothing_that_stays(buffer: Buffer, broker: Broker, times: int) -> None:
    for _ in range(times):
        await buffer.test_accept()

    assert not keys_without_expiry(broker)
