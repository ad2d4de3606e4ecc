"""The store with the story in it, and the service over it."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio

from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api import story


@pytest.fixture(scope="session")
def told(front_process: FrontProcess) -> Iterator[Store]:
    """A database that holds the story; nobody writes to it."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *story.batches())
    yield store
    store.drop()


@pytest.fixture(scope="session")
def settings(told: Store) -> Settings:
    """The query service's settings for the story."""
    return Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": told.url, "RANKSCOPE_QUERY_HANDLES": "2"})


@pytest_asyncio.fixture
async def store(settings: Settings) -> AsyncIterator[ClickHouseStore]:
    """The service's store over the story."""
    opened = ClickHouseStore(ClickHouse(settings, Metrics()))
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def api(store: ClickHouseStore, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service."""
    transport = httpx.ASGITransport(create_app(store, settings), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        yield client
