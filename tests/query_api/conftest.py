"""The store with the story in it, and the service over it: in this process over HTTP, and as one with its chDB."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import httpx
import pytest
import pytest_asyncio

from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.service import serve
from rankscope_query_api.settings import Settings
from tests.ground.processes import Child, answers, free_port, python, wait_until
from tests.ground.shelf import Shelf
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
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the service in a process with a chDB that holds the story; one handle, 5,000 rows at most."""
    folder, port = tmp_path_factory.mktemp("embedded"), free_port()
    child = Child(python("tests.query_api.embedded", folder, str(port)), name="embedded", folder=folder)
    child.await_that(lambda: answers(port), what="listen")
    yield f"http://127.0.0.1:{port}"
    child.stop()


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
async def client(store: ClickHouseStore, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service in this process."""
    transport = httpx.ASGITransport(create_app(store, settings), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as opened:
        yield opened


@pytest.fixture(scope="session")
def served(told: Store) -> Iterator[str]:
    """Address of the service in a thread of this process, over ClickHouse's HTTP interface."""
    with serving(told) as address:
        yield address


@contextmanager
def serving(store: Store, more: Mapping[str, str] | None = None) -> Generator[str]:
    """Address of a service over a store, in a thread of this process; `more` are settings."""
    port = free_port()
    settings = {
        "RANKSCOPE_CLICKHOUSE_URL": store.url,
        "RANKSCOPE_QUERY_LISTEN": f"127.0.0.1:{port}",
        "RANKSCOPE_QUERY_TIMEOUT_S": "600",  # what ends sooner was ended
        "RANKSCOPE_VIGIL_EVERY_S": "0",  # the handles are the tests'
        **(more or {}),
    }
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=[serve(settings, stop)])
    thread.start()
    try:
        wait_until(lambda: answers(port), what="the service listens")
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture(params=["http", "chdb"])
def address(request: pytest.FixtureRequest) -> str:
    """Address of the service: over ClickHouse's HTTP interface, and with chDB in its own process."""
    return request.getfixturevalue("served" if request.param == "http" else "embedded")


@pytest_asyncio.fixture
async def api(address: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service."""
    async with httpx.AsyncClient(base_url=address, timeout=60) as opened:
        yield opened


@pytest_asyncio.fixture
async def own(front_process: FrontProcess, shelf: Shelf) -> AsyncIterator[Store]:
    """A store of the test's own."""
    with shelf.lent(front_process.url) as store:
        yield store


@pytest_asyncio.fixture
async def api_of_own(own: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    async with over(own) as opened:
        yield opened


@asynccontextmanager
async def over(store: Store) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the service over a store, in this process."""
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": store.url})
    opened = ClickHouseStore(ClickHouse(settings, Metrics()))
    transport = httpx.ASGITransport(create_app(opened, settings), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
        yield api
    await opened.close()
