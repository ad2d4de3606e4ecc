"""A gateway of its own for one test, in the test's own event loop."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from rankscope_ingest import gateway
from rankscope_proto.keys import KeyFile, Scope
from tests.ground.brokers import Broker
from tests.ground.processes import answers, free_port
from tests.ingest.waiting import eventually

OPTIONS = [("grpc.max_send_message_length", 2**27), ("grpc.use_local_subchannel_pool", 1)]
"""Large requests; a connection for each channel."""


@asynccontextmanager
async def running(broker: Broker, settings: Mapping[str, str] | None = None) -> AsyncGenerator[str]:
    """The address of a running gateway over that broker."""
    port = free_port()
    listen = f"127.0.0.1:{port}"
    given = {"RANKSCOPE_REDIS_URL": broker.url, "RANKSCOPE_GATEWAY_LISTEN": listen, **(settings or {})}
    stop = asyncio.Event()
    serving = asyncio.create_task(gateway.serve(given, stop))
    try:
        await eventually(lambda: answers(port), watched=serving)
        yield listen
    finally:
        stop.set()
        await asyncio.wait_for(serving, 30)


@asynccontextmanager
async def reached(address: str) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel to it, connected."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        await asyncio.wait_for(channel.channel_ready(), 30)
        yield channel


class Keys:
    """A file of keys that a test changes while a gateway reads it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self._file = KeyFile(self.path)

    def new(self, *projects: str, scope: Scope = Scope.INGEST, lifetime_ns: int | None = None) -> str:
        """A fresh key; without projects one for `default`."""
        return self._file.create(projects or ("default",), [scope], lifetime_ns=lifetime_ns)[0]

    def revoke(self, key: str) -> None:
        """Ends a key."""
        assert self._file.revoke(key.split("_")[1])


def bearing(key: str) -> tuple[tuple[str, str], ...]:
    """The metadata that carries a key."""
    return (("authorization", f"Bearer {key}"),)
