"""The fixtures of the test ground; what they give is described where it is defined."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ground.brokers import Broker
from tests.ground.processes import Children
from tests.ground.ranks import Pool
from tests.ground.shelf import Shelf
from tests.ground.stacks import Stack
from tests.ground.stores import SERVER, FrontProcess, Store, server_url
from tests.proto.batches import migrate


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A real broker with an empty folder of its own."""
    folder = tmp_path / "broker"
    folder.mkdir()
    server = Broker(folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    """Starts programs; what a test leaves running is ended after it."""
    started = Children(tmp_path)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def front_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontProcess]:
    """The one chDB behind HTTP of a test run; use `clickhouse_front`."""
    front = FrontProcess(tmp_path_factory.mktemp("front"))
    yield front
    front.stop()


@pytest.fixture(params=["chdb", pytest.param("server", marks=pytest.mark.clickhouse)])
def clickhouse_url(request: pytest.FixtureRequest) -> str:
    """ClickHouse's HTTP interface: chDB's, and with `make test-clickhouse` the real server's."""
    if request.param == "server":
        url = server_url()
        if url is None:
            pytest.skip(f"{SERVER} names no ClickHouse server")
        return url
    front: FrontProcess = request.getfixturevalue("front_process")
    return front.url


@pytest.fixture
def clickhouse_front(clickhouse_url: str) -> Iterator[Store]:
    """An empty database behind ClickHouse's HTTP interface."""
    store = Store(clickhouse_url)
    yield store
    store.drop()


@pytest.fixture(scope="session")
def shelf(front_process: FrontProcess) -> Iterator[Shelf]:
    """Databases with every object of the contract; use `migrated`. The front outlives it."""
    lending = Shelf(lambda store: migrate(store.client))
    yield lending
    lending.clear()


@pytest.fixture
def migrated(clickhouse_url: str, shelf: Shelf) -> Iterator[Store]:
    """A database with every object of the contract and no row, behind ClickHouse's HTTP interface."""
    with shelf.lent(clickhouse_url) as store:
        yield store


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Four resident ranks of a real torchrun launch."""
    ranks = Pool(tmp_path_factory.mktemp("pool"), world_size=4)
    yield ranks
    ranks.stop()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One real `rankscope up` for the whole test run; tests keep apart by their run ids."""
    running = Stack(tmp_path_factory.mktemp("home"))
    yield running
    running.stop()
