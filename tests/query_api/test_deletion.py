"""Deleting a run: all of it, from every table, and nothing of any other."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.keys import EVERY_PROJECT, KeyFile, KeyRing, Scope
from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.errors import QueryError
from rankscope_query_api.limits import THE_SERVICE
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.reading.deletion import DELETED
from rankscope_query_api.settings import Settings
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey, Table, Value
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api.asking import error_in, get
from tests.query_api.batches import MS, START, Row, Writer, heard
from tests.query_api.test_statements import TABLES

END: Row = {"time": START, "kind": "end_of_stream", "name": "end of stream", "severity": 2}
SPAN: Row = {"span_id": 7, "trace_hi": 1, "trace_lo": 2, "name": "load", "kind": 13, "start": START, "duration": MS}
LOSS: Row = {"name": "loss", "step": 0, "value": 1.0, "time": START}
HIT: Row = {"time": START, "breakpoint": "nan", "name": "head.weight", "step": 0}
KEPT: Row = {"name": "head.weight", "step": 0, "time": START, "bytes": 3, "chunks": 1, "data": b"abc"}
GAP: Row = {"class": 1, "cause": "ring_full", "data_kind": "spans", "count": 3, "start": START}
OTHERS = [("default", "kept"), ("other", "r")]
"""A run beside it, and one of the same id in another project."""


def write(store: Store, *runs: tuple[str, str], ended: bool = True) -> None:
    """A small run with a row in most tables, for each (project, run)."""
    for project, run in runs:
        events = [END] if ended else []
        writer = Writer(run, 0, project=project)
        batch = writer.seal(
            lost={"spans": 3},
            spans=[SPAN],
            scalars=[LOSS],
            gaps=[GAP],
            events=events,
            hits=[HIT],
            captures=[KEPT],
        )
        insert(store.client, batch, token=f"{project}/{run}/{ended}")


def rows_of(store: Store, project: str, run: str) -> dict[str, int]:
    """Rows of a run by table, where there are any."""
    counts = {
        table: store.client.command(f"SELECT count() FROM {table} WHERE project = '{project}' AND run_id = '{run}'")
        for table in TABLES
    }
    return {table: int(str(count)) for table, count in counts.items() if count}


@pytest.mark.parametrize("statement", DELETED)
def test_every_deletion_is_bound_to_one_run_of_one_project(statement: str) -> None:
    assert "WHERE project = {project:String} AND run_id = {run:String}\n" in statement


def test_the_ledger_goes_last_and_every_table_goes() -> None:
    tables = [statement.split()[2] for statement in DELETED]

    assert tables[-1] == "batches"
    assert set(tables) == TABLES


async def test_a_deleted_run_is_gone_from_every_table_and_no_other_is(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    write(own, ("default", "r"), *OTHERS)
    before = [rows_of(own, *other) for other in OTHERS]
    held = rows_of(own, "default", "r")

    answer = await api_of_own.delete("/api/v1/runs/r")

    assert answer.status_code == 200
    assert {table: rows for table, rows in answer.json()["deleted"].items() if rows} == held
    assert {"batches", "trace_index", "spans", "gaps", "hits", "captures"} <= set(held)
    assert rows_of(own, "default", "r") == {}
    assert [rows_of(own, *other) for other in OTHERS] == before
    assert (await api_of_own.get("/api/v1/runs/r")).status_code == 404
    assert [run["run_id"] for run in (await get(api_of_own, "/api/v1/runs"))["items"]] == ["kept"]


async def test_an_unknown_run_is_404_and_deletes_nothing(own: Store, api_of_own: httpx.AsyncClient) -> None:
    write(own, *OTHERS)

    answer = await api_of_own.delete("/api/v1/runs/r")

    assert error_in(answer, status=404)["code"] == "unknown_run"
    assert all(rows_of(own, *other) for other in OTHERS)


async def test_a_run_that_may_still_run_is_kept_unless_it_is_forced(own: Store, api_of_own: httpx.AsyncClient) -> None:
    write(own, ("default", "r"), ended=False)
    heard(own, seconds_ago=1)

    refused = await api_of_own.delete("/api/v1/runs/r")
    kept = rows_of(own, "default", "r")
    forced = await api_of_own.delete("/api/v1/runs/r?force=true")

    assert error_in(refused, status=409)["code"] == "run_is_running"
    assert "rank 0" in refused.json()["message"]
    assert kept
    assert forced.status_code == 200
    assert rows_of(own, "default", "r") == {}


async def test_a_run_that_fell_silent_may_be_deleted(own: Store, api_of_own: httpx.AsyncClient) -> None:
    write(own, ("default", "r"), ended=False)
    heard(own, seconds_ago=61)

    assert (await api_of_own.delete("/api/v1/runs/r")).status_code == 200


async def test_a_deletion_that_was_cut_short_is_done_again(own: Store, api_of_own: httpx.AsyncClient) -> None:
    write(own, ("default", "r"))
    for statement in DELETED[:-1]:
        own.client.command(statement, parameters={"project": "default", "run": "r"})

    again = await api_of_own.delete("/api/v1/runs/r?force=true")

    assert again.status_code == 200
    assert rows_of(own, "default", "r") == {}


@pytest_asyncio.fixture
async def store_of_own(own: Store) -> AsyncIterator[TraceStore]:
    opened = ClickHouseStore(ClickHouse(Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": own.url}), Metrics()))
    yield opened
    await opened.close()


class Overtaken:
    """A store into which something comes in the middle of the first deletion."""

    def __init__(self, door: ClickHouse, *, arrive: Callable[[], None]) -> None:
        self._door = door
        self._arrivals = [arrive]

    async def select(self, statement: str, parameters: Mapping[str, Value]) -> Table:
        """As the store."""
        return await self._door.select(statement, parameters)

    async def erase(self, statements: Sequence[str], parameters: Mapping[str, Value]) -> None:
        """As the store, and before the last table something comes, once."""
        await self._door.erase(statements[:-1], parameters)
        while self._arrivals:
            self._arrivals.pop()()
        await self._door.erase(statements[-1:], parameters)

    async def insert(self, body: bytes, *, token: str) -> None:
        """As the store."""
        await self._door.insert(body, token=token)


async def test_a_batch_that_comes_while_its_run_is_deleted_leaves_no_part_of_itself(own: Store) -> None:
    write(own, ("default", "r"))
    before = rows_of(own, "default", "r")
    clickhouse = ClickHouse(Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": own.url}), Metrics())
    store = ClickHouseStore(clickhouse, Overtaken(clickhouse, arrive=lambda: write(own, ("default", "r"), ended=False)))

    deleted = await store.delete(RunKey("default", "r"))

    await store.close()
    assert rows_of(own, "default", "r") == {}
    assert deleted["spans"] == 2 * before["spans"]


async def test_an_admin_of_one_project_deletes_nothing_of_another(
    own: Store, store_of_own: TraceStore, tmp_path: Path
) -> None:
    write(own, ("default", "r"), ("other", "r"))
    path = tmp_path / "keys.json"
    mine, _ = KeyFile(path).create(["other"], [Scope.ADMIN])
    everybodys, _ = KeyFile(path).create([EVERY_PROJECT], [Scope.ADMIN])
    app = create_app(store_of_own, Settings(), ring=KeyRing(path))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as api:
        foreign = await api.delete("/api/v1/runs/r?project=default", headers={"authorization": f"Bearer {mine}"})
        unknown = await api.delete("/api/v1/runs/r?project=nobody", headers={"authorization": f"Bearer {everybodys}"})
        by_default = await api.delete("/api/v1/runs/r", headers={"authorization": f"Bearer {mine}"})

    assert foreign.status_code == unknown.status_code == 404
    assert foreign.text.replace("default", "nobody") == unknown.text
    assert by_default.json()["project"] == "other"
    assert rows_of(own, "default", "r")
    assert rows_of(own, "other", "r") == {}


async def test_nobodys_project_has_nothing_to_delete(own: Store, store_of_own: TraceStore) -> None:
    write(own, ("default", "r"))

    deleted = await store_of_own.asked_by(THE_SERVICE, is_foreign=True).delete(RunKey("default", "r"))

    assert set(deleted.values()) == {0}
    assert rows_of(own, "default", "r")


async def test_the_handles_that_read_still_cannot_write(store_of_own: TraceStore, own: Store) -> None:
    write(own, ("default", "r"))
    await store_of_own.delete(RunKey("default", "nothing"))

    with pytest.raises(QueryError, match=r"(?i)read-?only"):
        await store_of_own.query("ALTER TABLE scalars DELETE WHERE 1", {})
