"""The broker's scripts on a real broker: accept, commit, budget, claims, and what a full broker still does."""

import random

import pytest
from pydantic import SecretStr

from rankscope_ingest.buffer import (
    Buffer,
    Claimant,
    Offer,
    Outcome,
    bytes_key,
    claim_key,
    stream_key,
)
from rankscope_ingest.errors import BrokerUnavailable, BrokerUnfit, Busy, ConfigError
from tests.ground.brokers import Broker
from tests.ingest.looking import entries_in, keys_without_expiry, without_disk

INCARNATION = b"0123456789abcdef"
SHARD = 3
BUDGET = 1_000


def offer(seq: int, *, payload: bytes = b"payload", digest: bytes | None = None, base: int = 0) -> Offer:
    return Offer(payload, INCARNATION, seq, digest or seq.to_bytes(16, "big"), 2, 20_000, base)


async def accept_many(buffer: Buffer, count: int) -> None:
    for seq in range(count):
        await buffer.accept(SHARD, offer(seq), budget=10**9)


async def test_batches_in_order_are_accepted(buffer: Buffer) -> None:
    first = await buffer.accept(SHARD, offer(0), budget=BUDGET)
    second = await buffer.accept(SHARD, offer(1), budget=BUDGET)

    assert (first.outcome, first.accepted, first.held) == (Outcome.ACCEPTED, 1, 7)
    assert (second.outcome, second.accepted, second.held) == (Outcome.ACCEPTED, 2, 14)


async def test_the_same_batch_again_is_a_duplicate_and_adds_nothing(buffer: Buffer, broker: Broker) -> None:
    await accept_many(buffer, 3)

    again = await buffer.accept(SHARD, offer(1), budget=BUDGET)

    assert (again.outcome, again.accepted) == (Outcome.DUPLICATE, 3)
    with broker.client() as client:
        assert client.xlen(stream_key(SHARD)) == 3


async def test_another_payload_under_a_taken_seq_is_a_conflict_and_the_first_one_stays(
    buffer: Buffer, broker: Broker
) -> None:
    await accept_many(buffer, 2)

    other = await buffer.accept(SHARD, offer(1, payload=b"other", digest=b"o" * 16), budget=BUDGET)

    assert other.outcome is Outcome.CONFLICT
    assert [entry[b"payload"] for entry in entries_in(broker, SHARD)] == [b"payload"] * 2


async def test_a_batch_behind_a_missing_one_is_told_where_to_go_on(buffer: Buffer) -> None:
    await accept_many(buffer, 2)

    ahead = await buffer.accept(SHARD, offer(5), budget=BUDGET)

    assert (ahead.outcome, ahead.accepted) == (Outcome.EXPECTED, 2)


async def test_a_batch_at_its_senders_base_is_accepted_over_a_hole(buffer: Buffer) -> None:
    await accept_many(buffer, 2)

    at_base = await buffer.accept(SHARD, offer(5, base=5), budget=BUDGET)
    behind_base = await buffer.accept(SHARD, offer(9, base=8), budget=BUDGET)

    assert (at_base.outcome, at_base.accepted) == (Outcome.ACCEPTED, 6)
    assert (behind_base.outcome, behind_base.accepted) == (Outcome.EXPECTED, 8)


async def test_a_sender_that_a_foreign_base_passed_over_goes_on_where_it_was(buffer: Buffer, broker: Broker) -> None:
    await accept_many(buffer, 2)
    far = 2**40
    await buffer.accept(SHARD, offer(far, base=far, digest=b"f" * 16), budget=BUDGET)

    stands = [await buffer.accept(SHARD, offer(seq), budget=BUDGET) for seq in (2, 3, 3, 5, 4)]
    onwards = await buffer.accept(SHARD, offer(far + 1), budget=BUDGET)

    assert [(stand.outcome, stand.accepted) for stand in stands] == [
        (Outcome.ACCEPTED, 3),
        (Outcome.ACCEPTED, 4),
        (Outcome.DUPLICATE, 4),
        (Outcome.EXPECTED, 4),
        (Outcome.ACCEPTED, 5),
    ]
    assert (onwards.outcome, onwards.accepted) == (Outcome.ACCEPTED, far + 2)
    with broker.client() as client:
        assert client.xlen(stream_key(SHARD)) == 7


async def test_nothing_that_was_not_stored_is_ever_called_a_duplicate(buffer: Buffer, broker: Broker) -> None:
    rng = random.Random(7)
    stored: set[int] = set()
    for _ in range(600):
        seq = rng.randrange(40)
        base = seq if rng.random() < 0.1 else 0
        stand = await buffer.accept(SHARD, offer(seq, base=base), budget=10**9)

        assert (stand.outcome is not Outcome.DUPLICATE) or seq in stored
        assert (stand.outcome is not Outcome.ACCEPTED) or seq not in stored
        if stand.outcome is Outcome.ACCEPTED:
            stored.add(seq)
    with broker.client() as client:
        assert client.xlen(stream_key(SHARD)) == len(stored)


async def test_a_batch_above_the_budget_fits_into_an_empty_shard(buffer: Buffer) -> None:
    alone = await buffer.accept(SHARD, offer(0, payload=b"x" * 2_000), budget=BUDGET)

    assert alone.outcome is Outcome.ACCEPTED


async def test_a_broker_without_disk_is_waited_for(buffer: Buffer, broker: Broker) -> None:
    with without_disk(broker):
        with pytest.raises(Busy, match="cannot write to its disk") as busy:
            await buffer.accept(SHARD, offer(0), budget=BUDGET)
        with pytest.raises(Busy):
            await buffer.ping()

    assert busy.value.retry_after_ms > 0
    assert (await buffer.accept(SHARD, offer(0), budget=BUDGET)).outcome is Outcome.ACCEPTED


async def test_a_claim_has_one_holder_until_it_is_given_back_or_replaced(buffer: Buffer) -> None:
    claim = claim_key("default", "run", rank=0)

    assert await buffer.claim(claim, Claimant(b"a", b"A", b""), lifetime_ms=10_000) is None
    assert await buffer.claim(claim, Claimant(b"a", b"A", b""), lifetime_ms=10_000) is None
    assert await buffer.claim(claim, Claimant(b"b", b"B", b""), lifetime_ms=10_000) == b"A"
    assert await buffer.claim(claim, Claimant(b"b", b"B", b"a"), lifetime_ms=10_000) is None
    await buffer.release(claim, holder=b"a")
    assert await buffer.claim_holder(claim) == (b"b", b"B")
    await buffer.release(claim, holder=b"b")
    assert await buffer.claim_holder(claim) is None


async def test_every_key_that_names_an_incarnation_or_a_rank_expires(buffer: Buffer, broker: Broker) -> None:
    await accept_many(buffer, 1)
    await buffer.claim(claim_key("default", "run", rank=0), Claimant(b"a", b"A", b""), lifetime_ms=10_000)
    await buffer.mark_once("rankscope:conflict:a:b")

    assert keys_without_expiry(broker) == {key.encode() for key in (stream_key(SHARD), bytes_key(SHARD))}


def test_names_with_colons_do_not_make_two_claims_one() -> None:
    assert claim_key("a:b", "c", rank=0) != claim_key("a", "b:c", rank=0)


async def test_a_restarted_broker_still_has_what_it_accepted(buffer: Buffer, broker: Broker) -> None:
    await accept_many(buffer, 2)
    broker.kill_once_written()

    with pytest.raises(BrokerUnavailable, match="did not answer"):
        await buffer.accept(SHARD, offer(2), budget=BUDGET)
    broker.start()

    assert (await buffer.accept(SHARD, offer(2), budget=BUDGET)).accepted == 3


async def test_an_evicting_broker_is_refused_with_the_remedy(buffer: Buffer, broker: Broker) -> None:
    with broker.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")

    with pytest.raises(BrokerUnfit, match="set `maxmemory-policy noeviction`"):
        await buffer.check()


async def test_a_broker_without_a_file_is_warned_of(buffer: Buffer, broker: Broker) -> None:
    assert await buffer.check() == []
    with broker.client() as client:
        client.config_set("appendonly", "no")

    assert "appendonly" in (await buffer.check())[0]


async def test_a_broker_that_is_not_there_is_named_with_the_setting() -> None:
    buffer = Buffer(SecretStr("redis://:secret@127.0.0.1:1/0"))

    with pytest.raises(BrokerUnavailable) as caught:
        await buffer.ping()
    await buffer.close()

    assert "redis://:***@127.0.0.1:1/0" in str(caught.value)
    assert "RANKSCOPE_REDIS_URL" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_url_that_is_none_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="RANKSCOPE_REDIS_URL"):
        Buffer(SecretStr("http://127.0.0.1"))
