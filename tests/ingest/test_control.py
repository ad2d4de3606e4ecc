"""Claims of ranks over gRPC, and the event that a second trainer leaves."""

import json

import grpc
import grpc.aio
import pytest

from rankscope_ingest.entries import varint
from rankscope_proto.names import ProcessRole
from rankscope_proto.v1.ingest_pb2 import Ack, AgentStatus
from tests.ground.brokers import Broker
from tests.ingest.batches import Sender
from tests.ingest.calls import Attached, push
from tests.ingest.looking import batches_in
from tests.ingest.waiting import eventually


def status(incarnation: bytes, *, rank: int = 0, role: ProcessRole = ProcessRole.TRAINER) -> AgentStatus:
    return AgentStatus(
        project="default",
        run_id="run",
        launch_id=b"l" * 16,
        process_role=role.code,
        rank=rank,
        incarnation=incarnation,
        node="node0",
        pid=42,
        boot_id="boot",
    )


FIRST, SECOND = b"f" * 16, b"s" * 16


async def test_the_first_trainer_of_a_rank_gets_it_and_the_second_hears_who_has_it(channel: grpc.aio.Channel) -> None:
    first, second = Attached(channel), Attached(channel)

    granted = await first.claim(status(FIRST))
    refused = await second.claim(status(SECOND))

    assert granted.granted
    assert not refused.granted
    assert (refused.holder.incarnation, refused.holder.node, refused.holder.pid) == (FIRST, "node0", 42)


async def test_other_ranks_and_other_roles_do_not_contend(channel: grpc.aio.Channel) -> None:
    await Attached(channel).claim(status(FIRST))

    other_rank = await Attached(channel).claim(status(SECOND, rank=1))
    worker = await Attached(channel).claim(status(SECOND, role=ProcessRole.WORKER))

    assert other_rank.granted
    assert worker.granted


async def test_a_dead_holder_is_replaced(channel: grpc.aio.Channel) -> None:
    await Attached(channel).claim(status(FIRST))
    taking_over = status(SECOND)
    taking_over.replaces = FIRST

    assert (await Attached(channel).claim(taking_over)).granted


async def test_a_holder_that_ends_in_order_frees_its_rank_at_once(channel: grpc.aio.Channel) -> None:
    first = Attached(channel)
    await first.claim(status(FIRST))

    await first.end()

    assert (await Attached(channel).claim(status(SECOND))).granted


async def test_a_holder_that_vanishes_keeps_its_rank_for_a_while(channel: grpc.aio.Channel) -> None:
    first = Attached(channel)
    await first.claim(status(FIRST))

    first.cut()

    assert not (await Attached(channel).claim(status(SECOND))).granted


async def test_a_status_without_a_run_is_refused(channel: grpc.aio.Channel) -> None:
    call = Attached(channel)
    nameless = status(FIRST)
    nameless.run_id = ""

    with pytest.raises(grpc.aio.AioRpcError, match="run_id"):
        await call.claim(nameless)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("project", "a/b"),
        ("run_id", "a\nb"),
        ("launch_id", b"xx"),
        ("incarnation", b""),
        ("node", "n" * 7_000_000),
        ("boot_id", "b" * 129),
        ("replaces", b"r" * 17),
        ("process_role", 256),
        ("process_role", 0),
        ("rank", -2),
    ],
)
async def test_a_status_is_refused_by_the_name_of_the_field(
    channel: grpc.aio.Channel, broker: Broker, field: str, value: str | bytes | int
) -> None:
    wrong = status(FIRST)
    setattr(wrong, field, value)

    with pytest.raises(grpc.aio.AioRpcError, match=rf'details = "{field}: ') as caught:
        await Attached(channel).claim(wrong)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with broker.client() as client:
        assert not client.keys("rankscope:claim:*")


async def test_a_status_whose_text_is_not_utf8_is_refused_by_name(channel: grpc.aio.Channel) -> None:
    request = status(FIRST).SerializeToString().replace(b"node0", b"\xff" * 5)

    with pytest.raises(grpc.aio.AioRpcError, match="node: not UTF-8"):
        await Attached(channel).claim_bytes(request)


async def test_a_status_with_much_that_is_unknown_is_refused(channel: grpc.aio.Channel) -> None:
    unknown = b"\xfa\x07" + varint(5_000) + b"x" * 5_000

    with pytest.raises(grpc.aio.AioRpcError, match=r"status: 5\d+ bytes; at most 4096"):
        await Attached(channel).claim_bytes(status(FIRST).SerializeToString() + unknown)


@pytest.fixture
async def held_rank(channel: grpc.aio.Channel) -> Sender:
    """The sender that holds rank 0."""
    sender = Sender()
    call = Attached(channel)
    await call.claim(status(sender.incarnation))
    return sender


async def test_a_second_trainer_that_sends_is_accepted_and_recorded_once(
    channel: grpc.aio.Channel, held_rank: Sender, broker: Broker
) -> None:
    second = Sender()

    await push(channel, held_rank.next())
    outcomes = [(await push(channel, second.next())).outcome for _ in range(3)]

    events = [batch for batch in batches_in(broker) if batch.events.kind]
    assert outcomes == [Ack.OUTCOME_ACCEPTED] * 3
    assert len(events) == 1
    event = events[0]
    details = json.loads(event.events.payload[0])
    assert event.strings[event.events.kind[0]] == "rank_conflict"
    assert (event.header.run_id, event.header.process_role) == ("run", ProcessRole.SERVER.code)
    assert details["holder"]["incarnation"] == held_rank.incarnation.hex()
    assert details["second"]["incarnation"] == second.incarnation.hex()


async def test_a_rank_that_nobody_claimed_has_no_conflict(channel: grpc.aio.Channel, broker: Broker) -> None:
    await push(channel, Sender().next())
    await push(channel, Sender().next())

    await eventually(lambda: len(batches_in(broker)) == 2)
    assert not [batch for batch in batches_in(broker) if batch.events.kind]
