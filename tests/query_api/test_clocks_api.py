"""Clocks as the store holds them: what is read of them, what is answered, and what collectives add."""

from collections.abc import AsyncIterator, Sequence

import httpx
import pytest_asyncio

from rankscope_proto.names import COLLECTIVE_FLAGS
from rankscope_proto.v1 import batch_pb2 as pb
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.routes.clocks import correction_of
from rankscope_query_api.settings import Settings
from rankscope_query_api.values import RunKey
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api.asking import get
from tests.query_api.batches import MS, START, Row, S, Writer

RUN = "far-gateway"
LAUNCH = b"C" * 16
HOUR = 3600 * S
AHEAD = {0: 0, 1: HOUR, 2: -HOUR, 3: HOUR}
"""How far each rank's clock is ahead; nobody measured that of rank 3."""

ERROR = 20 * MS
WRONG = (-15 * MS, 15 * MS, 10 * MS, 0)
"""How wrong each measurement is."""


def half(of: bytes, place: int) -> int:
    """One half of an id."""
    return int.from_bytes(of[8 * place : 8 * place + 8], "big")


def clock_row(writer: Writer, true_ns: int, *, wrong_ns: int, server: str = "gate boot") -> Row:
    """A measurement of a rank's clock."""
    ahead = AHEAD[writer.rank]
    return {
        "time": true_ns + ahead,
        "of_hi": half(writer.incarnation, 0),
        "of_lo": half(writer.incarnation, 1),
        "offset": wrong_ns - ahead,
        "error": ERROR,
        "drift": 0,
        "rtt": 2 * ERROR,
        "samples": 8,
        "server": server,
    }


def meeting(rank: int, place: int, **more: object) -> Row:
    """The last comes 2 ms after the first, and all leave 1 ms after that."""
    came, left = START + place * S + rank * MS // 2, START + place * S + 3 * MS
    row: Row = {
        "entry": came + AHEAD[rank],
        "exit": left + AHEAD[rank],
        "group": "0",
        "group_ranks": "0-3",
        "cseq": place + 1,
        "op": "all_reduce",
        "entry_source": "call",
        "exit_source": "call",
        "step": place % 10,
    }
    return {**row, **more}


def batches(*, wrong: Sequence[int] = WRONG, ranks: int = 4) -> list[pb.Batch]:
    """What each rank sends; each but the last measures its own clock."""
    made: list[pb.Batch] = []
    for rank in range(ranks):
        writer = Writer(RUN, rank, launch=LAUNCH)
        met = [meeting(rank, place) for place in range(20)]
        # A device's queue is left at once, and a broadcast by its root: what looks like everybody's exit is none.
        met += [meeting(rank, 30 + rank, exit=START + AHEAD[rank], flags=COLLECTIVE_FLAGS["enqueued"])]
        met += [meeting(rank, 35, exit=START + AHEAD[rank], op="broadcast")]
        rounds = [clock_row(writer, START + place * 10 * S, wrong_ns=wrong[rank]) for place in range(5) if rank < 3]
        made.append(writer.seal(sealed_ns=START + 40 * S + AHEAD[rank], collectives=met, clocks=rounds))
    return made


@pytest_asyncio.fixture
async def store(own: Store) -> AsyncIterator[ClickHouseStore]:
    """The service's store over a store of the test's own."""
    opened = ClickHouseStore(ClickHouse(Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": own.url}), Metrics()))
    yield opened
    await opened.close()


KEY = RunKey("default", RUN)


def incarnation(rank: int) -> str:
    return Writer(RUN, rank, launch=LAUNCH).incarnation.hex()


async def test_a_launch_is_refined_by_its_collectives_where_a_time_is_asked_for(
    own: Store, store: ClickHouseStore, api_of_own: httpx.AsyncClient
) -> None:
    insert(own.client, *batches())
    raw = START - HOUR, START + 20 * S + HOUR

    plain = await correction_of(store, KEY, LAUNCH.hex())
    surer = await correction_of(store, KEY, LAUNCH.hex(), between=raw, steps=(0, 40))
    answer = await get(api_of_own, f"/api/v1/runs/{RUN}/clocks")

    at_ns = START + 5 * S
    assert plain.at(incarnation(3), at_ns + AHEAD[3]) is None
    found = [surer.at(incarnation(rank), at_ns + AHEAD[rank]) for rank in range(4)]
    placed = [(at_ns + AHEAD[rank] + one[0], one[1]) for rank, one in enumerate(found) if one is not None]
    assert len(placed) == 4
    assert max(error_ns for _, error_ns in placed) < ERROR // 2
    assert all(abs(one - other) <= error + more for one, error in placed for other, more in placed)
    assert answer["unmeasured_ranks"] == [3]
    assert answer["error_ns"] == str(ERROR)
    assert [item["offset_ns"] for item in answer["items"]] == [
        *(str(wrong_ns - AHEAD[rank]) for rank, wrong_ns in enumerate(WRONG[:3])),
        None,
    ]
    assert len(answer["warnings"]) == 1


async def test_measurements_that_contradict_the_collectives_are_told(own: Store, api_of_own: httpx.AsyncClient) -> None:
    insert(own.client, *batches(wrong=(0, 0, 500 * MS)))

    answer = await get(api_of_own, f"/api/v1/runs/{RUN}/clocks")

    assert any("contradicts collectives" in warning and "rank" in warning for warning in answer["warnings"])


async def test_a_long_run_is_read_thinly_and_a_window_of_it_with_its_neighbours(
    own: Store, store: ClickHouseStore
) -> None:
    writer = Writer(RUN, 0, launch=LAUNCH)
    insert(own.client, writer.seal(clocks=[clock_row(writer, START + at * S, wrong_ns=0) for at in range(0, 5000, 5)]))

    whole = await store.clocks.readings(KEY, LAUNCH.hex())
    window = await store.clocks.readings(KEY, LAUNCH.hex(), between=(START + 1001 * S, START + 1012 * S))
    other = await store.clocks.readings(KEY, "f" * 32)

    assert 90 <= len(whole) <= 110
    seconds = [(one.at_ns - START) // S for one in window]
    assert (seconds[0], seconds[-1]) == (1000, 1015)
    assert set(seconds) <= {1000, 1005, 1010, 1015}
    assert list(other) == []
