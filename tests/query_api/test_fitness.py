"""A store that cannot be read is told apart from one that can, before anybody asks it."""

import asyncio

import pytest

from rankscope_proto.storage import migrations
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.errors import StoreUnavailableError
from rankscope_query_api.fitness import TABLES, problem
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.service import serve
from rankscope_query_api.settings import Settings
from tests.ground.processes import free_port, wait_until
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import migrate

LATEST = migrations()[-1].version


@pytest.mark.parametrize("version", ["26.2.1.1", "26.9.1", "26.10.2.65"])
def test_a_store_with_all_tables_is_fit(version: str) -> None:
    assert problem(version, {*TABLES, "landing"}, migrated=LATEST) is None


@pytest.mark.parametrize(
    ("version", "tables", "migrated", "said"),
    [
        ("26.1.9.14", TABLES, LATEST, "the store is ClickHouse 26.1.9.14, and rankscope needs 26.2 or newer"),
        ("24.12.1.1", (), None, "needs 26.2 or newer"),
        ("26.2.1.1", (), None, "the database has no table of rankscope; run `rankscope migrate` once"),
        ("26.2.1.1", TABLES[1:], None, f"no table {TABLES[0]}; run"),
        ("26.2.1.1", TABLES, LATEST - 1, f"of migration {LATEST - 1}, and this version reads those of {LATEST}"),
    ],
)
def test_an_unfit_store_is_told_in_one_line(
    version: str, tables: tuple[str, ...], migrated: int | None, said: str
) -> None:
    found = problem(version, set(tables), migrated=migrated)

    assert found is not None
    assert said in str(found)


async def test_tables_of_an_older_migration_are_refused(front_process: FrontProcess) -> None:
    old = Store(front_process.url)
    migrate(old.client)
    old.client.command("CREATE TABLE schema_migrations (version UInt32) ENGINE = MergeTree ORDER BY version")
    store = ClickHouseStore(ClickHouse(Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": old.url}), Metrics()))

    with pytest.raises(StoreUnavailableError, match="are of migration 0"):
        await store.ping()
    await store.close()
    old.drop()


async def test_the_service_waits_for_the_tables_and_says_so_once(
    front_process: FrontProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rankscope_query_api.service")
    empty, stop = Store(front_process.url), asyncio.Event()
    settings = {"RANKSCOPE_CLICKHOUSE_URL": empty.url, "RANKSCOPE_QUERY_LISTEN": f"127.0.0.1:{free_port()}"}
    serving = asyncio.create_task(serve(settings, stop))

    await asyncio.to_thread(wait_until, lambda: "no table of rankscope" in caplog.text, what="the complaint")
    await asyncio.to_thread(migrate, empty.client)
    await asyncio.to_thread(wait_until, lambda: caplog.messages[-1] == "ready", what="readiness")
    stop.set()
    await serving
    empty.drop()

    complaints = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert complaints[0] == "not ready: the database has no table of rankscope; run `rankscope migrate` once"
    assert len(complaints) == len(set(complaints))
