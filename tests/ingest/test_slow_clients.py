"""Clients that hold connections and calls and say next to nothing: they are let go, and their neighbours go on."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

import grpc
import pytest

from rankscope_ingest import access, gateway
from rankscope_proto.v1.ingest_pb2 import Ack
from tests.ground.brokers import Broker
from tests.ingest.batches import Sender
from tests.ingest.calls import Streaming, push
from tests.ingest.gateways import reached, running

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


async def is_closed_by_the_gateway(address: str, said: bytes) -> bool:
    """Whether a connection that says no more than that is ended from the other side."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    try:
        while await asyncio.wait_for(reader.read(1_024), 20):
            pass
    except ConnectionResetError:
        pass
    finally:
        writer.close()
    return True


@pytest.mark.parametrize("said", [b"", b"P", PREFACE[:-1], PREFACE], ids=["nothing", "a byte", "half", "no settings"])
async def test_connections_that_never_say_enough_are_closed_and_others_served(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    options = {**dict(gateway.SERVER_OPTIONS), "grpc.server_handshake_timeout_ms": 500}
    monkeypatch.setattr(gateway, "SERVER_OPTIONS", tuple(options.items()))

    async with running(broker) as address, reached(address) as channel:
        slow = [asyncio.create_task(is_closed_by_the_gateway(address, said)) for _ in range(100)]
        outcome = (await push(channel, Sender().next())).outcome
        closed = await asyncio.gather(*slow)

    assert outcome == Ack.OUTCOME_ACCEPTED
    assert all(closed)


async def test_hundreds_of_silent_streams_hold_nobody_up_and_are_closed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "SILENCE_S", 2.0)

    async with running(broker) as address, reached(address) as channel, AsyncExitStack() as stack:
        others = [await stack.enter_async_context(reached(address)) for _ in range(2)]
        silent = [Streaming(other) for other in others for _ in range(200)]
        ends = [asyncio.create_task(stream.refusal()) for stream in silent]
        sender = Sender()
        outcomes = [(await push(channel, sender.next())).outcome for _ in range(20)]
        codes = {(await end).code() for end in ends}

    assert outcomes == [Ack.OUTCOME_ACCEPTED] * 20
    assert codes == {grpc.StatusCode.UNAVAILABLE}


async def test_a_push_whose_batch_never_comes_is_ended(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SILENCE_S", 0.1)

    async with running(broker) as address, reached(address) as channel:
        waiting: Any = cast("Any", channel).stream_unary("/rankscope.v1.Ingest/Push")(timeout=20)
        ended: Any = cast("Any", channel).stream_unary("/rankscope.v1.Ingest/Push")(timeout=20)
        await ended.done_writing()
        codes = [await waiting.code(), await ended.code()]

    assert codes == [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT]
