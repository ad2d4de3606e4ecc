"""Room for answers: who waits for it keeps nobody from the store who would give some back."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.room import HELD, Holding, Room
from rankscope_query_api.settings import Settings
from rankscope_query_api.values import Table
from tests.ground.stores import Store
from tests.query_api.sql.cutting import COSTLY

ONE = "SELECT 1 AS one"


@pytest_asyncio.fixture
async def settings(told: Store) -> Settings:
    """One handle, room for a MiB, and patience."""
    given = {"HANDLES": "1", "MAX_ANSWERS_BYTES": str(2**20), "TIMEOUT_S": "600"}
    named = {f"RANKSCOPE_QUERY_{name}": value for name, value in given.items()}
    return Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": told.url, **named})


@pytest_asyncio.fixture
async def door(settings: Settings) -> AsyncIterator[ClickHouse]:
    """The handles."""
    opened = ClickHouse(settings, Metrics())
    yield opened
    await opened.close()


def asked(door: ClickHouse, holding: Holding, query: str = ONE) -> "asyncio.Task[Table]":
    """One query of a request that holds something already, or nothing."""

    async def one() -> Table:
        HELD.set(holding)
        return await door.select(query, {})

    return asyncio.create_task(one())


async def test_who_waits_for_room_leaves_the_handles_to_those_who_hold_what_fills_it(
    settings: Settings, door: ClickHouse
) -> None:
    room = Room(settings)
    full, new = Holding(room), Holding(room)
    for holding in (full, new):
        holding.begin(lambda: None)
    full.written(2**21)

    waiting = asked(door, new)
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        first = await asked(door, full)
    assert not waiting.done()
    full.end()

    assert [table.columns[0][0] for table in (first, await waiting)] == [1, 1]


async def test_queries_that_a_request_leaves_behind_end_with_it(settings: Settings, door: ClickHouse) -> None:
    # One of two queries has failed, and the request with it; nobody waits for the other.
    holding = Holding(Room(settings))
    holding.begin(lambda: None)
    left = asked(door, holding, COSTLY["timed_out"])
    await asyncio.sleep(0)

    holding.end()

    async with asyncio.timeout(30):
        assert await asyncio.gather(left, return_exceptions=True) != [None]
        assert left.cancelled()
        assert (await door.select(ONE, {})).columns[0][0] == 1
