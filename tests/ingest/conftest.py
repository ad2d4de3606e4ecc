"""A buffer on a real broker, and a running gateway."""

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio
from pydantic import SecretStr

from rankscope_ingest import gateway
from rankscope_ingest.buffer import Buffer
from tests.ground.brokers import Broker
from tests.ground.processes import answers, free_port
from tests.ingest.waiting import eventually


@pytest_asyncio.fixture
async def buffer(broker: Broker) -> AsyncIterator[Buffer]:
    """The buffer over a real broker of its own."""
    opened = Buffer(SecretStr(broker.url))
    yield opened
    await opened.close()


@pytest.fixture
def budget() -> int:
    """Bytes a shard may hold; a test overrides it."""
    return 32 * 2**20


@pytest_asyncio.fixture
async def channel(broker: Broker, budget: int) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a running gateway over a real broker."""
    port = free_port()
    listen = f"127.0.0.1:{port}"
    settings = {
        "RANKSCOPE_REDIS_URL": broker.url,
        "RANKSCOPE_GATEWAY_LISTEN": listen,
        "RANKSCOPE_SHARD_BUDGET_BYTES": str(budget),
    }
    stop = asyncio.Event()
    serving = asyncio.create_task(gateway.serve(settings, stop))
    await eventually(lambda: answers(port), watched=serving)
    async with grpc.aio.insecure_channel(listen, options=[("grpc.max_send_message_length", 2**24)]) as opened:
        await asyncio.wait_for(opened.channel_ready(), 30)
        yield opened
    stop.set()
    await asyncio.wait_for(serving, 30)
