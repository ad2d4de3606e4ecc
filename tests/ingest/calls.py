"""The gateway's calls from a client's side, typed: the stubs for asyncio know neither streams nor metadata."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from rankscope_proto.v1.ingest_pb2 import Ack, AgentStatus, Command, Sealed, StandReply, StandRequest

TIMEOUT_S = 20.0
DETAILS = "grpc-status-details-bin"


Metadata = tuple[tuple[str, str], ...]


async def push_bytes(
    channel: grpc.aio.Channel, request: bytes, *, metadata: Metadata = (), compression: grpc.Compression | None = None
) -> Ack:
    """Ingest.Push with those bytes."""
    method: Any = cast("Any", channel).unary_unary("/rankscope.v1.Ingest/Push")
    return Ack.FromString(await method(request, timeout=TIMEOUT_S, metadata=metadata, compression=compression))


async def push(channel: grpc.aio.Channel, sealed: Sealed, *, metadata: Metadata = ()) -> Ack:
    """Ingest.Push."""
    return await push_bytes(channel, sealed.SerializeToString(), metadata=metadata)


async def refused(
    channel: grpc.aio.Channel, sealed: Sealed, *, metadata: Metadata = (), compression: grpc.Compression | None = None
) -> grpc.aio.AioRpcError:
    """The error with which a push ends."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await push_bytes(channel, sealed.SerializeToString(), metadata=metadata, compression=compression)
    return caught.value


async def stands(
    channel: grpc.aio.Channel, senders: Iterable[StandRequest.Sender], *, metadata: Metadata = ()
) -> list[tuple[int, int]]:
    """Ingest.Stand: accepted and durable of each."""
    method: Any = cast("Any", channel).unary_unary("/rankscope.v1.Ingest/Stand")
    request = StandRequest(senders=senders).SerializeToString()
    reply = StandReply.FromString(await method(request, timeout=TIMEOUT_S, metadata=metadata))
    return [(stand.accepted, stand.durable) for stand in reply.stands]


class Streaming:
    """An open Ingest.Stream, one batch at a time."""

    def __init__(self, channel: grpc.aio.Channel, *, metadata: Metadata = ()) -> None:
        self._call: Any = cast("Any", channel).stream_stream("/rankscope.v1.Ingest/Stream")(metadata=metadata)

    async def send(self, sealed: Sealed) -> Ack:
        """Sends a batch and gives its acknowledgement."""
        await self._call.write(sealed.SerializeToString())
        return Ack.FromString(await asyncio.wait_for(self._call.read(), TIMEOUT_S))

    async def refusal(self) -> grpc.aio.AioRpcError:
        """The error that ends it, waited for."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(self._call.read(), TIMEOUT_S)
        return caught.value

    async def end(self) -> None:
        """Ends our side in order and waits until the gateway has ended its own."""
        await self._call.done_writing()
        await self._call.code()


def retry_info(error: grpc.aio.AioRpcError) -> bytes | None:
    """The status details of an error; None where it has none."""
    pairs = cast("Iterable[tuple[str, bytes]]", error.trailing_metadata())
    return next((value for key, value in pairs if key == DETAILS), None)


async def stream(channel: grpc.aio.Channel, batches: Iterable[Sealed]) -> tuple[list[Ack], grpc.StatusCode]:
    """Sends the batches in one stream; the acknowledgements and the status that ended it."""

    async def requests() -> AsyncIterator[bytes]:
        for sealed in batches:
            yield sealed.SerializeToString()

    call: Any = cast("Any", channel).stream_stream("/rankscope.v1.Ingest/Stream")(requests(), timeout=TIMEOUT_S)
    acks: list[Ack] = []
    with suppress(grpc.aio.AioRpcError):
        async for answer in call:
            acks.append(Ack.FromString(answer))  # noqa: PERF401 # what came before the error counts
    return acks, await call.code()


class Attached:
    """An open Control.Attach."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._call: Any = cast("Any", channel).stream_stream("/rankscope.v1.Control/Attach")()

    async def claim(self, status: AgentStatus) -> Command.Claim:
        """Sends a status and gives the answer to it."""
        return await self.claim_bytes(status.SerializeToString())

    async def claim_bytes(self, request: bytes) -> Command.Claim:
        """Sends those bytes as a status and gives the answer to it."""
        await self._call.write(request)
        return Command.FromString(await asyncio.wait_for(self._call.read(), TIMEOUT_S)).claim

    async def end(self) -> None:
        """Ends our side in order and waits until the gateway has ended its own."""
        await self._call.done_writing()
        await self._call.code()

    def cut(self) -> None:
        """Ends the call as a lost connection would."""
        self._call.cancel()


async def health_changes(channel: grpc.aio.Channel, service: str) -> AsyncIterator[int]:
    """The states of a service, the present one first."""
    request = HealthCheckRequest(service=service).SerializeToString()
    answers: Any = cast("Any", channel).unary_stream("/grpc.health.v1.Health/Watch")(request, timeout=TIMEOUT_S)
    async for answer in answers:
        yield HealthCheckResponse.FromString(answer).status


async def first_command(channel: grpc.aio.Channel, status: AgentStatus, *, metadata: Metadata = ()) -> Command:
    """The first command of a Control.Attach with one status; its error where the call fails."""

    async def requests() -> AsyncIterator[bytes]:
        yield status.SerializeToString()

    method: Any = cast("Any", channel).stream_stream("/rankscope.v1.Control/Attach")
    call: Any = method(requests(), timeout=TIMEOUT_S, metadata=metadata)
    async for answer in call:
        return Command.FromString(answer)
    raise AssertionError("the gateway ended the call without a command")
