"""The writer's scripts on a real broker: leases and fences, manifest, commit, and what a full broker still does."""

import pytest

from rankscope_ingest.broker_keys import bytes_key, lease_key, manifest_key, state_key, stream_key
from rankscope_ingest.buffer import Buffer, Claimant, Offer, Outcome
from rankscope_ingest.entries import Group, take
from rankscope_ingest.errors import Busy, LeaseLost
from rankscope_ingest.streams import Streams, Writer
from rankscope_proto.identity import SHARDS
from tests.ground.brokers import Broker
from tests.ingest.looking import keys_without_expiry
from tests.ingest.writing import Leased

INCARNATION = b"0123456789abcdef"
SHARD = 3
BUDGET = 1_000


def offer(seq: int, *, payload: bytes = b"payload", base: int = 0, again: bool = False) -> Offer:
    return Offer(payload, INCARNATION, seq, seq.to_bytes(16, "big"), 2, 20_000, base, again=again)


async def accept_many(buffer: Buffer, count: int) -> None:
    for seq in range(count):
        await buffer.accept(SHARD, offer(seq), budget=10**9)


async def everything(leased: Leased) -> Group:
    return take(await leased.read(), rows=10**6, size=10**9)


async def test_commit_forgets_the_entries_and_moves_the_durable_watermark(
    buffer: Buffer, broker: Broker, leased: Leased
) -> None:
    await accept_many(buffer, 5)
    group = take(await leased.read(), rows=6, size=10**6)

    await leased.commit(group)
    await leased.commit(group)

    with broker.client() as client:
        assert client.xlen(stream_key(SHARD)) == 2
        assert client.get(bytes_key(SHARD)) == b"14"
    assert (await buffer.accept(SHARD, offer(0), budget=BUDGET)).durable == 3


async def test_what_was_read_and_not_committed_is_read_again_from_the_start(buffer: Buffer, leased: Leased) -> None:
    await accept_many(buffer, 3)
    first = await leased.read()

    again = await leased.read()
    behind = await leased.streams.read({SHARD: first[0].place.id}, count=10, block_ms=100)

    assert again == first
    assert behind == first[1:]


async def test_an_entry_that_may_have_been_accepted_before_says_so(buffer: Buffer, leased: Leased) -> None:
    await buffer.accept(SHARD, offer(0), budget=BUDGET)
    await buffer.accept(SHARD, offer(1, again=True), budget=BUDGET)

    assert [(entry.seq, entry.again, entry.week) for entry in await leased.read()] == [
        (0, False, 20_000),
        (1, True, 20_000),
    ]


async def test_reading_waits_no_longer_than_asked(leased: Leased) -> None:
    assert await leased.streams.read({SHARD: "0-0"}, count=10, block_ms=10) == []


async def test_a_manifest_is_found_by_its_shards_until_all_are_committed(
    buffer: Buffer, broker: Broker, leased: Leased
) -> None:
    await accept_many(buffer, 2)
    await buffer.accept(SHARD + 1, offer(0), budget=BUDGET)
    group = await everything(leased)
    await leased.begin(group)

    found = await leased.streams.manifest(SHARD)
    await leased.streams.commit(leased.name, SHARD, entries=group.by_shard()[SHARD], fence=leased.fences[SHARD])
    after_one = (await leased.streams.manifest(SHARD), await leased.streams.manifest(SHARD + 1))
    await leased.streams.forget(leased.name, group)
    still_there = await leased.streams.manifest(SHARD + 1)
    await leased.commit(group)
    await leased.streams.forget(leased.name, group)

    assert found is not None
    assert (found[0], found[1].token) == (leased.name, group.token)
    assert list(found[1].places) == [entry.place for entry in group.entries]
    assert after_one == (None, found)
    assert still_there == found
    with broker.client() as client:
        assert not client.exists(manifest_key(leased.name))


async def test_who_lost_a_shard_can_neither_begin_nor_commit(buffer: Buffer, streams: Streams, leased: Leased) -> None:
    await accept_many(buffer, 2)
    group = await everything(leased)
    other = Leased(streams, name="another")
    await other.hold(dead=[leased.name])

    with pytest.raises(LeaseLost) as at_manifest:
        await leased.begin(group)
    with pytest.raises(LeaseLost):
        await leased.commit(group)

    assert at_manifest.value.shards == (SHARD,)
    assert len(await other.read()) == 2
    assert await streams.manifest(SHARD) is None


async def test_a_lease_that_lapsed_and_came_back_does_not_cover_what_was_read_under_the_first(
    buffer: Buffer, broker: Broker, leased: Leased
) -> None:
    await accept_many(buffer, 1)
    group = await everything(leased)
    before = dict(leased.fences)
    with broker.client() as client:
        client.delete(lease_key(SHARD))
    await leased.hold()

    assert leased.fences[SHARD] > before[SHARD]
    leased.fences = before
    with pytest.raises(LeaseLost):
        await leased.begin(group)


async def test_two_writers_share_the_shards_and_a_dead_ones_go_to_the_other(streams: Streams) -> None:
    one, two = Leased(streams, name="one"), Leased(streams, name="two")
    await one.hold()
    await two.hold()
    for shard in list(one.fences)[SHARDS // 2 :]:
        await streams.hand_over("one", shard, fence=one.fences[shard], broker="")
    await two.hold()
    await one.hold()
    shared = (len(one.fences), len(two.fences))

    await two.hold(dead=["one"])

    assert shared == (SHARDS // 2, SHARDS // 2)
    assert len(two.fences) == SHARDS


async def test_an_orderly_hand_over_counts_only_while_the_broker_is_the_same_process(
    broker: Broker, streams: Streams, leased: Leased
) -> None:
    identity = await streams.broker()
    for shard in (0, 1):
        await streams.hand_over(leased.name, shard, fence=leased.fences[shard], broker=identity)
    await streams.hand_over(leased.name, 2, fence=leased.fences[2], broker="")
    first = await streams.lease(Writer("b", b"{}"), lifetime_ms=60_000, broker=identity, dead=[leased.name])
    await streams.hand_over("b", 1, fence=first.shards[1].fence, broker=identity)
    second = await streams.lease(Writer("c", b"{}"), lifetime_ms=60_000, broker="restarted", dead=["b"])

    assert [lease.how for lease in first.shards[:4]] == ["clean", "clean", "taken", "taken"]
    assert second.shards[1].how == "taken"


async def test_a_batch_behind_one_that_vanished_sets_its_sender_back(
    buffer: Buffer, broker: Broker, leased: Leased
) -> None:
    await accept_many(buffer, 5)
    group = await everything(leased)
    with broker.client() as client:
        client.xdel(stream_key(SHARD), group.entries[1].place.id)
    left = Group(tuple(entry for entry in group.entries if entry.seq != 1))

    set_back = await leased.commit(left)
    stand = await buffer.accept(SHARD, offer(1, again=True), budget=BUDGET)

    assert set_back == 1
    assert (stand.outcome, stand.accepted, stand.durable) == (Outcome.ACCEPTED, 2, 1)


async def test_batches_that_come_out_of_their_order_leave_no_hole(buffer: Buffer, leased: Leased) -> None:
    await accept_many(buffer, 4)
    group = await everything(leased)

    set_back = await leased.commit(Group(tuple(reversed(group.entries))))

    assert set_back == 0
    assert (await buffer.accept(SHARD, offer(0), budget=BUDGET)).durable == 4


async def test_a_base_that_passed_over_batches_is_no_hole(buffer: Buffer, leased: Leased) -> None:
    await accept_many(buffer, 2)
    await buffer.accept(SHARD, offer(10, base=10), budget=BUDGET)
    await buffer.accept(SHARD, offer(11, base=10), budget=BUDGET)

    assert await leased.commit(await everything(leased)) == 0
    assert (await buffer.accept(SHARD, offer(11), budget=BUDGET)).durable == 12


async def test_what_is_committed_after_the_broker_forgot_its_sender_makes_no_watermark(
    buffer: Buffer, broker: Broker, leased: Leased
) -> None:
    await accept_many(buffer, 2)
    group = await everything(leased)
    with broker.client() as client:
        client.delete(state_key(SHARD, INCARNATION))

    assert await leased.commit(group) == 0
    with broker.client() as client:
        assert not client.exists(state_key(SHARD, INCARNATION))
        assert client.xlen(stream_key(SHARD)) == 0


async def test_a_sender_that_was_passed_over_is_not_told_that_its_batches_are_durable(
    buffer: Buffer, leased: Leased
) -> None:
    far = 2**40
    await buffer.accept(SHARD, offer(far, base=far), budget=BUDGET)
    await leased.commit(await everything(leased))

    stands = [await buffer.accept(SHARD, offer(seq), budget=BUDGET) for seq in (0, 1)]

    assert [(stand.accepted, stand.durable) for stand in stands] == [(1, 0), (2, 0)]


async def test_a_full_shard_has_no_room_until_it_is_drained(buffer: Buffer, leased: Leased) -> None:
    await buffer.accept(SHARD, offer(0, payload=b"x" * 900), budget=BUDGET)

    refused = await buffer.accept(SHARD, offer(1, payload=b"x" * 200), budget=BUDGET)
    await leased.commit(await everything(leased))
    accepted = await buffer.accept(SHARD, offer(1, payload=b"x" * 200), budget=BUDGET)

    assert refused.outcome is Outcome.NO_ROOM
    assert (accepted.outcome, accepted.held, accepted.durable) == (Outcome.ACCEPTED, 200, 1)


async def test_a_full_broker_refuses_batches_and_still_drains(buffer: Buffer, broker: Broker, leased: Leased) -> None:
    await accept_many(buffer, 3)
    with broker.client() as client:
        client.config_set("maxmemory", "1")

    with pytest.raises(Busy, match="maxmemory") as busy:
        await buffer.accept(SHARD, offer(3), budget=10**9)
    group = await everything(leased)
    await leased.hold()
    await leased.begin(group)
    await leased.commit(group)
    await leased.streams.forget(leased.name, group)
    await leased.streams.hand_over(leased.name, 0, fence=leased.fences[0], broker="b")
    granted = await buffer.claim("claim", Claimant(b"a", b"A", b""), lifetime_ms=10_000)

    assert busy.value.retry_after_ms > 0
    assert granted is None
    with broker.client() as client:
        assert client.xlen(stream_key(SHARD)) == 0


async def test_a_writer_can_start_on_a_full_broker(buffer: Buffer, broker: Broker, streams: Streams) -> None:
    await accept_many(buffer, 1)
    with broker.client() as client:
        client.config_set("maxmemory", "1")
    late = Leased(streams)

    await late.hold()

    assert len(late.fences) == SHARDS
    assert len(await late.read()) == 1


async def test_every_key_of_a_writer_but_the_fence_expires(buffer: Buffer, broker: Broker, leased: Leased) -> None:
    await accept_many(buffer, 1)
    await leased.begin(await everything(leased))
    await leased.streams.hand_over(leased.name, 0, fence=leased.fences[0], broker="b")

    lasting = {key.decode() for key in keys_without_expiry(broker)}

    assert lasting == {stream_key(SHARD), bytes_key(SHARD), "rankscope:fence"}
