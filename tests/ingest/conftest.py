"""A buffer on a real broker, and a running gateway."""

from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio
from pydantic import SecretStr

from rankscope_ingest.buffer import Buffer
from rankscope_ingest.clickhouse import Store as Sink
from rankscope_ingest.migrate import migrate
from rankscope_ingest.streams import Streams
from tests.ground.brokers import Broker
from tests.ground.stores import Store
from tests.ingest.gateways import reached, running
from tests.ingest.writing import Leased


@pytest_asyncio.fixture
async def buffer(broker: Broker) -> AsyncIterator[Buffer]:
    """The buffer over a real broker of its own."""
    opened = Buffer(SecretStr(broker.url))
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def streams(broker: Broker) -> AsyncIterator[Streams]:
    """The streams of the same broker."""
    opened = Streams(SecretStr(broker.url))
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def leased(streams: Streams) -> Leased:
    """A writer that holds every shard."""
    writer = Leased(streams)
    await writer.hold()
    return writer


@pytest_asyncio.fixture
async def sink(clickhouse_front: Store) -> AsyncIterator[Sink]:
    """The store as the writer has it, migrated."""
    opened = Sink(SecretStr(clickhouse_front.url))
    await migrate(opened)
    yield opened
    await opened.close()


@pytest.fixture
def budget() -> int:
    """Bytes a shard may hold; a test overrides it."""
    return 32 * 2**20


@pytest_asyncio.fixture
async def channel(broker: Broker, budget: int) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a running gateway over a real broker."""
    settings = {"RANKSCOPE_SHARD_BUDGET_BYTES": str(budget)}
    async with running(broker, settings) as address, reached(address) as opened:
        yield opened
