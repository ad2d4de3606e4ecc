"""The gateway over gRPC, with a real broker behind it."""

import asyncio
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1.health_pb2 import HealthCheckResponse
from pydantic import SecretStr

from rankscope._host import boot_id, node_name
from rankscope_ingest import gateway, health
from rankscope_ingest.buffer import Accepted, Buffer, Claimant, Offer
from rankscope_ingest.dead_letters import DeadLetters, Stage
from rankscope_ingest.errors import BrokerUnavailable, BrokerUnfit, CannotStart
from rankscope_proto.identity import shard_of
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_proto.v1.ingest_pb2 import Ack, AgentStatus, Sealed, StandReply, StandRequest
from tests.ground.brokers import Broker
from tests.ground.processes import answers, free_port
from tests.ingest.batches import Sender, batch, seal
from tests.ingest.calls import first_command, health_changes, push, push_bytes, refused, retry_info, stands, stream
from tests.ingest.gateways import reached, running
from tests.ingest.looking import entries_in, without_disk
from tests.ingest.waiting import eventually


def entry_of(broker: Broker, sealed: Sealed, *, run_id: str = "run") -> dict[bytes, bytes]:
    return entries_in(broker, shard_of(run_id, sealed.incarnation))[-1]


async def test_a_batch_reaches_the_broker_under_its_own_bytes(channel: grpc.aio.Channel, broker: Broker) -> None:
    sealed = Sender().next()

    ack = await push(channel, sealed)

    entry = entry_of(broker, sealed)
    assert (ack.outcome, ack.accepted, ack.durable) == (Ack.OUTCOME_ACCEPTED, 1, 0)
    assert ack.credit > 0
    assert entry[b"payload"].startswith(sealed.payload)
    assert entry[b"digest"] == sealed.digest
    assert (entry[b"seq"], entry[b"rows"], entry[b"week"]) == (b"0", b"6", str(sealed.week).encode())
    assert int(entry[b"expanded"]) > len(sealed.payload)


async def test_only_the_receive_time_is_appended(channel: grpc.aio.Channel, broker: Broker) -> None:
    sealed = Sender().next()

    await push(channel, sealed)

    stored = Batch.FromString(entry_of(broker, sealed)[b"payload"])
    assert stored.received > 0
    stored.ClearField("received")
    assert stored == Batch.FromString(sealed.payload)


async def test_pushing_again_is_a_duplicate(channel: grpc.aio.Channel) -> None:
    sealed = Sender().next()

    outcomes = [(await push(channel, sealed)).outcome for _ in range(2)]

    assert outcomes == [Ack.OUTCOME_ACCEPTED, Ack.OUTCOME_DUPLICATE]


async def test_a_stream_acknowledges_each_batch_in_order(channel: grpc.aio.Channel) -> None:
    sender = Sender()

    acks, code = await stream(channel, [sender.next() for _ in range(5)])

    assert [ack.accepted for ack in acks] == [1, 2, 3, 4, 5]
    assert code is grpc.StatusCode.OK


async def test_a_stream_that_skips_is_told_where_to_go_on(channel: grpc.aio.Channel) -> None:
    sender = Sender()
    first, _, third = (sender.next() for _ in range(3))

    acks, _ = await stream(channel, [first, third])

    assert (acks[1].outcome, acks[1].expected) == (Ack.OUTCOME_EXPECTED, 1)


async def test_a_refusal_names_the_field_and_is_for_ever(channel: grpc.aio.Channel) -> None:
    message = batch()
    message.header.rank = 4

    error = await refused(channel, seal(message))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "header.rank: 4 is not below world_size 4"
    assert retry_info(error) is None


async def test_bytes_that_are_no_request_are_refused(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await push_bytes(channel, b"\xff\xff")

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_refused_batch_ends_the_stream_after_its_predecessors_acks(channel: grpc.aio.Channel) -> None:
    sender = Sender()
    good, bad, behind = (sender.next() for _ in range(3))
    bad.rows = 99

    acks, code = await stream(channel, [good, bad, behind])

    assert [ack.accepted for ack in acks] == [1]
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_sender_goes_on_behind_a_refused_batch(channel: grpc.aio.Channel) -> None:
    sender = Sender()
    good, bad, behind = (sender.next() for _ in range(3))
    bad.rows = 99
    await stream(channel, [good, bad])
    behind.base = behind.seq

    acks, code = await stream(channel, [behind])

    assert (acks[0].outcome, acks[0].accepted, code) == (Ack.OUTCOME_ACCEPTED, 3, grpc.StatusCode.OK)


async def test_a_batch_whose_seq_another_one_holds_is_kept_with_its_own_bytes(
    channel: grpc.aio.Channel, broker: Broker
) -> None:
    sender = Sender()
    first, message = sender.next(), batch(incarnation=sender.incarnation)
    message.scalars.value[0] = 7.5
    await push(channel, first)

    acks = [await push(channel, seal(message)) for _ in range(2)]

    letters = DeadLetters(SecretStr(broker.url))
    [(_, letter)] = await letters.page()
    await letters.close()
    assert [ack.outcome for ack in acks] == [Ack.OUTCOME_CONFLICT] * 2
    assert letter.payload.startswith(message.SerializeToString())
    assert (letter.incarnation, letter.seq, letter.stage, letter.rows) == (sender.incarnation, 0, Stage.CONFLICT, 6)
    assert entry_of(broker, first)[b"digest"] == first.digest


async def test_a_batch_says_in_the_broker_that_it_may_have_come_before(
    channel: grpc.aio.Channel, broker: Broker
) -> None:
    sealed = Sender().next()
    sealed.again = True

    await push(channel, sealed)

    assert entry_of(broker, sealed)[b"again"] == b"1"


async def test_senders_of_many_shards_hear_where_they_stand_in_the_order_asked(channel: grpc.aio.Channel) -> None:
    senders = [Sender(run_id=f"run-{index}") for index in range(40)]
    for index, sender in enumerate(senders):
        for _ in range(index % 3):
            await push(channel, sender.next())

    found = await stands(channel, [asked(sender.run_id, sender.incarnation) for sender in senders])

    assert found == [(index % 3, 0) for index in range(40)]


@pytest.mark.parametrize(
    ("senders", "field"),
    [
        ([("run", b"i" * 16)] * 257, "senders: 257 asked for; at most 256 at once"),
        ([("run", b"i" * 16), ("run", b"short")], "senders.incarnation: 5 bytes at 1"),
        ([("r" * 200_000, b"i" * 16)], "senders: 2000"),
    ],
    ids=["many", "short", "large"],
)
async def test_a_question_that_cannot_be_answered_is_refused_by_name(
    channel: grpc.aio.Channel, senders: list[tuple[str, bytes]], field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=field) as caught:
        await stands(channel, [asked(*sender) for sender in senders])

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_whoever_asks_for_nobody_is_told_the_time_and_on_whose_clock(channel: grpc.aio.Channel) -> None:
    method: Any = cast("Any", channel).unary_unary("/rankscope.v1.Ingest/Stand")

    before_ns = time.time_ns()
    reply = StandReply.FromString(await method(StandRequest().SerializeToString()))

    assert before_ns <= reply.received_ns <= reply.answered_ns <= time.time_ns()
    assert reply.gateway.split() == [node_name(), boot_id()]
    assert not reply.stands


def asked(run_id: str, incarnation: bytes) -> StandRequest.Sender:
    return StandRequest.Sender(project="default", run_id=run_id, incarnation=incarnation)


@pytest.mark.parametrize("size", [4 * 2**20 + 1, 9 * 2**20])
async def test_a_batch_over_the_limit_is_refused(channel: grpc.aio.Channel, size: int) -> None:
    sealed = Sender().next()
    sealed.payload = bytes(size)

    error = await refused(channel, sealed)

    # gRPC's own limit answers above 8 MiB, without RetryInfo: that is permanent too.
    assert error.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert retry_info(error) is None


class TestWithoutRoom:
    """The shard's budget is full: the least that can be set, and one batch that exceeds it."""

    @pytest.fixture
    def budget(self) -> int:
        return 8 * 2**20

    async def test_a_stream_stays_and_asks_to_wait(self, channel: grpc.aio.Channel, broker: Broker) -> None:
        sender = Sender()
        first, second, third = (sender.next() for _ in range(3))
        await push(channel, first)
        fill(broker, first)

        acks, code = await stream(channel, [second, third])

        assert [(ack.outcome, ack.expected) for ack in acks] == [(Ack.OUTCOME_EXPECTED, 1)] * 2
        assert acks[0].retry_after_ms > 0
        assert acks[0].credit == 0
        assert code is grpc.StatusCode.OK

    async def test_a_batch_waits_for_the_room_that_comes_soon(self, channel: grpc.aio.Channel, broker: Broker) -> None:
        sender = Sender()
        first, second = sender.next(), sender.next()
        await push(channel, first)
        fill(broker, first)

        waiting = asyncio.create_task(push(channel, second))
        await asyncio.wait({waiting}, timeout=0.2)
        was_waiting = not waiting.done()
        fill(broker, first, held=0)

        assert was_waiting
        assert (await waiting).outcome == Ack.OUTCOME_ACCEPTED

    async def test_a_push_is_exhausted_and_carries_retry_info(self, channel: grpc.aio.Channel, broker: Broker) -> None:
        sender = Sender()
        first, second = sender.next(), sender.next()
        await push(channel, first)
        fill(broker, first)

        error = await refused(channel, second)

        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert b"google.rpc.RetryInfo" in (retry_info(error) or b"")


def fill(broker: Broker, sealed: Sealed, *, held: int = 8 * 2**20) -> None:
    """Lets the shard of a batch look as if it held so many bytes."""
    shard = shard_of("run", sealed.incarnation)
    with broker.client() as client:
        client.set(f"rankscope:{{s{shard:02}}}:bytes", held)


async def test_without_its_broker_the_gateway_asks_to_try_again(channel: grpc.aio.Channel, broker: Broker) -> None:
    broker.kill()

    error = await refused(channel, Sender().next())

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "RANKSCOPE_REDIS_URL" in (error.details() or "")
    assert b"google.rpc.RetryInfo" in (retry_info(error) or b"")


async def test_a_broker_without_disk_is_waited_for_and_said_once(
    channel: grpc.aio.Channel, broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LOOK_EVERY_S", 0.01)
    states = health_changes(channel, "rankscope.v1.Ingest")
    before = await anext(states)
    with without_disk(broker):
        during = await anext(states)
        error = await refused(channel, Sender().next())
    after = await anext(states)

    serving = HealthCheckResponse.SERVING
    assert (before, during, after) == (serving, HealthCheckResponse.NOT_SERVING, serving)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert b"google.rpc.RetryInfo" in (retry_info(error) or b"")
    assert caplog.text.count("not serving") == 1
    assert (await push(channel, Sender().next())).outcome == Ack.OUTCOME_ACCEPTED


async def test_health_follows_the_broker(channel: grpc.aio.Channel, broker: Broker) -> None:
    states = health_changes(channel, "rankscope.v1.Ingest")

    before = await anext(states)
    broker.kill()
    after = await anext(states)

    assert (before, after) == (HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING)


async def test_a_busy_port_is_said(broker: Broker) -> None:
    port = free_port()
    settings = {"RANKSCOPE_REDIS_URL": broker.url, "RANKSCOPE_GATEWAY_LISTEN": f"127.0.0.1:{port}"}
    stop = asyncio.Event()
    first = asyncio.create_task(gateway.serve(settings, stop))
    await eventually(lambda: answers(port), watched=first)

    with pytest.raises(CannotStart, match=f"cannot listen on 127.0.0.1:{port}"):
        await gateway.serve(settings, asyncio.Event())
    stop.set()
    await first


async def test_a_busy_port_for_metrics_is_said(broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = {"RANKSCOPE_REDIS_URL": broker.url, "RANKSCOPE_GATEWAY_METRICS_LISTEN": listen}

        with pytest.raises(CannotStart, match=f"cannot listen on {listen}.*RANKSCOPE_GATEWAY_METRICS_LISTEN"):
            await gateway.serve(settings, asyncio.Event())


async def test_a_gateway_without_a_broker_does_not_start() -> None:
    with pytest.raises(BrokerUnavailable, match="is it running"):
        await gateway.serve({"RANKSCOPE_REDIS_URL": "redis://127.0.0.1:1"}, asyncio.Event())


async def test_an_evicting_broker_is_refused_at_the_start(broker: Broker) -> None:
    with broker.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")

    with pytest.raises(BrokerUnfit, match="set `maxmemory-policy noeviction`"):
        await gateway.serve({"RANKSCOPE_REDIS_URL": broker.url}, asyncio.Event())


async def test_a_broker_too_small_for_its_budgets_is_warned_of(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(broker, {"RANKSCOPE_SHARD_BUDGET_BYTES": str(16 * 2**20)}):
        pass

    assert "has maxmemory 268435456; 16 shards of 16777216 bytes need 402653184" in caplog.text


async def test_a_replica_is_refused_at_the_start(broker: Broker) -> None:
    with broker.client() as client:
        client.replicaof("127.0.0.1", 1)

    with pytest.raises(BrokerUnfit, match=r"refused a command: .*read only replica"):
        await gateway.serve({"RANKSCOPE_REDIS_URL": broker.url}, asyncio.Event())


async def test_at_maxmemory_senders_are_asked_to_wait_and_a_gateway_starts_all_the_same(broker: Broker) -> None:
    first, second = Sender().next(), Sender().next()
    with broker.client() as client:
        client.config_set("maxmemory", "1")

        async with running(broker) as address, reached(address) as channel:
            error = await refused(channel, first)
            acks, code = await stream(channel, [second])
            client.config_set("maxmemory", str(2**28))
            accepted = [(await push(channel, sealed)).outcome for sealed in (first, second)]

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert b"google.rpc.RetryInfo" in (retry_info(error) or b"")
    assert (acks, code) == ([], grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert accepted == [Ack.OUTCOME_ACCEPTED] * 2


async def test_a_unix_socket_is_an_address(broker: Broker) -> None:
    with tempfile.TemporaryDirectory(prefix="rsg-") as folder:  # a socket's path has at most 108 bytes
        listen = f"unix:{folder}/gateway.sock"
        stop = asyncio.Event()
        settings = {"RANKSCOPE_REDIS_URL": broker.url, "RANKSCOPE_GATEWAY_LISTEN": listen}
        serving = asyncio.create_task(gateway.serve(settings, stop))
        await eventually(Path(listen.removeprefix("unix:")).exists, watched=serving)
        async with reached(listen) as channel:
            ack = await push(channel, Sender().next())
        stop.set()
        await serving

    assert ack.outcome == Ack.OUTCOME_ACCEPTED


class Faulty:
    """A broker's client with a fault nobody foresaw."""

    async def accept(self, shard: int, offer: Offer, *, budget: int) -> Accepted:
        raise ZeroDivisionError("unforeseen")

    async def claim(self, key: str, claimant: Claimant, *, lifetime_ms: int) -> bytes | None:
        raise ZeroDivisionError("unforeseen")


class TestWithAFault:
    """A handler meets an exception that nobody foresaw."""

    @pytest.fixture(autouse=True)
    def fault(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Buffer, "accept", Faulty.accept)
        monkeypatch.setattr(Buffer, "claim", Faulty.claim)

    async def test_a_push_is_internal_and_logged(
        self, channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
    ) -> None:
        error = await refused(channel, Sender().next())

        assert error.code() is grpc.StatusCode.INTERNAL
        assert error.details() == "a fault of the gateway (ZeroDivisionError); its log says more"
        assert "unforeseen" in caplog.text
        assert "Traceback" in caplog.text

    async def test_a_stream_ends_as_internal(self, channel: grpc.aio.Channel) -> None:
        assert await stream(channel, [Sender().next()]) == ([], grpc.StatusCode.INTERNAL)

    async def test_a_claim_ends_as_internal(self, channel: grpc.aio.Channel) -> None:
        status = AgentStatus(project="p", run_id="r", launch_id=bytes(16), incarnation=bytes(16), process_role=1)

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await first_command(channel, status)

        assert caught.value.code() is grpc.StatusCode.INTERNAL


async def test_the_greatest_seq_is_counted_exactly(channel: grpc.aio.Channel) -> None:
    last = seal(batch(2**53 - 1), base=2**53 - 1)

    ack = await push(channel, last)
    again = await push(channel, last)

    assert (ack.outcome, ack.accepted) == (Ack.OUTCOME_ACCEPTED, 2**53)
    assert (again.outcome, again.accepted) == (Ack.OUTCOME_DUPLICATE, 2**53)
