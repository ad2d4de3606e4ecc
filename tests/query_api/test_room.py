"""Room for answers: who waits for it keeps nobody from the store who would give some back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from starlette.types import Message, Receive, Scope, Send

from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.guarding import Guarded
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
        await asyncio.wait({left})
        assert left.cancelled()
        assert (await door.select(ONE, {})).columns[0][0] == 1


async def test_of_requests_that_hold_all_room_and_want_more_the_first_goes_on_and_then_the_next(
    settings: Settings, door: ClickHouse
) -> None:
    # Neither would give anything back before it has what it wants.
    room = Room(settings)
    first, second = Holding(room), Holding(room)
    for holding in (first, second):
        holding.begin(lambda: None)
        holding.written(2**21)

    waiting = asked(door, second)
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await asked(door, first)
        assert not waiting.done()
        first.end()
        await waiting


async def test_a_reader_that_takes_not_even_the_head_of_its_answer_loses_it(told: Store) -> None:
    # As of a second answer on a connection: the buffers are full of the first one.
    given = {"CLICKHOUSE_URL": told.url, "QUERY_SEND_TIMEOUT_S": "0.1"}
    settings = Settings.from_environment({f"RANKSCOPE_{name}": value for name, value in given.items()})
    arrived: list[Message] = [{"type": "http.request"}]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Message:
        return arrived.pop() if arrived else await never({})

    async def never(message: Message) -> Any:
        await asyncio.get_running_loop().create_future()

    async with asyncio.timeout(60):
        await Guarded(app, settings)({"type": "http", "method": "GET", "headers": []}, receive, never)


class Weighed:
    """A value that counts how often it was asked for its size."""

    asked = 0

    def __sizeof__(self) -> int:
        Weighed.asked += 1
        return 32


@pytest.mark.parametrize("shape", ["list", "tuple", "dict", "lists"])
def test_to_tell_the_size_of_long_values_takes_a_look_at_a_few_of_them(settings: Settings, shape: str) -> None:
    holding, values = Holding(Room(settings)), [Weighed() for _ in range(3_000)]
    shaped = {"list": values, "tuple": tuple(values), "dict": dict(enumerate(values)), "lists": [values[:100]] * 30}
    Weighed.asked = 0

    holding.read([[shaped[shape]] * 1_000])

    assert Weighed.asked < 10_000  # of three millions
    assert 3_000_000 * 32 < holding.held_bytes < 3_000_000 * 160
