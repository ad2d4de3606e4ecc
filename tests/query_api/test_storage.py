"""How much room the store takes, and when the disk will be full."""

import time

import httpx
import pytest

from rankscope_query_api.routes.storage import full_in_days
from rankscope_query_api.values import Disk, StorageState, TableSize
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api.asking import get
from tests.query_api.batches import START, Row, Writer, heard

GIB = 2**30
LOSS: Row = {"name": "loss", "step": 0, "value": 1.0, "time": START}


def this_monday() -> int:
    """In days since 1970-01-01, a Thursday: weeks before the last are not looked at."""
    today = int(time.time()) // 86_400
    return today - (today + 3) % 7


def table(*, size: int, rate: float, kept: int | None) -> TableSize:
    return TableSize("spans", rows=1, size_bytes=size, bytes_per_day=rate, retention_days=kept)


@pytest.mark.parametrize(
    ("tables", "days"),
    [
        ([], None),
        ([table(size=GIB, rate=0, kept=None)], None),
        ([table(size=GIB, rate=GIB, kept=None)], 10.0),
        ([table(size=GIB, rate=GIB, kept=4)], None),
        ([table(size=GIB, rate=GIB, kept=5)], 10.0),
        ([table(size=GIB, rate=GIB, kept=2), table(size=0, rate=GIB, kept=None)], 5.0),
    ],
)
def test_the_forecast_knows_what_retention_takes_back(tables: list[TableSize], days: float | None) -> None:
    assert full_in_days(StorageState(tables, [Disk("default", free_bytes=10 * GIB, total_bytes=99 * GIB)])) == days


async def test_sizes_rates_and_retention_are_told_by_table(own: Store, api_of_own: httpx.AsyncClient) -> None:
    empty = await get(api_of_own, "/api/v1/storage")
    batches = [Writer("r", rank).seal(scalars=[LOSS] * 100) for rank in range(2)]
    for batch in batches:
        batch.header.week = this_monday()
    insert(own.client, *batches, token="0")
    own.client.command("ALTER TABLE scalars MODIFY TTL week + INTERVAL 37 DAY")
    heard(own, seconds_ago=3600)

    storage = await get(api_of_own, "/api/v1/storage")

    assert (empty["bytes"], empty["bytes_per_day"], empty["full_in_days"]) == (0, 0.0, None)
    tables = {one["table"]: one for one in storage["tables"]}
    assert tables["scalars"]["rows"] == 200
    assert tables["scalars"]["retention_days"] == 30
    assert tables["spans"]["retention_days"] is None
    assert tables["open_spans"]["retention_days"] == 1
    assert tables["scalars"]["bytes_per_day"] == pytest.approx(24 * tables["scalars"]["bytes"], rel=0.1)
    assert storage["free_bytes"] == sum(disk["free_bytes"] for disk in storage["disks"]) > 0
    assert storage["full_in_days"] > 0


async def test_what_came_longer_than_a_day_ago_is_no_growth(own: Store, api_of_own: httpx.AsyncClient) -> None:
    insert(own.client, Writer("r", 0).seal(scalars=[LOSS]), token="0")
    heard(own, seconds_ago=2 * 24 * 3600)

    storage = await get(api_of_own, "/api/v1/storage")

    assert storage["bytes"] > 0
    assert (storage["bytes_per_day"], storage["full_in_days"]) == (0.0, None)
