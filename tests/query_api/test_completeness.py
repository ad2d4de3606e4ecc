"""What is missing is said, and by how much."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest_asyncio

from rankscope_proto.columns import SECTIONS
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.completeness import balances, faults
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from rankscope_query_api.values import LedgerEntry, RunKey
from tests.ground.stores import Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import START, Row, Writer

NOTHING = {section.name: 0 for section in SECTIONS}
WHOLE = LedgerEntry(
    incarnation="00" * 16,
    launch_id="00" * 16,
    rank=0,
    process_role="trainer",
    batches=5,
    distinct=5,
    last_seq=4,
    missing=(),
    emitted={**NOTHING, "scalars": 10},
    recorded={**NOTHING, "scalars": 8},
    stored={**NOTHING, "scalars": 8},
    lost={"scalars": 2},
    ended=True,
)
LOSS: Row = {"name": "loss", "step": 0, "value": 1.0, "time": START}


def test_emitted_is_stored_plus_lost() -> None:
    assert faults(WHOLE) == []
    assert [balance.missing for balance in balances([WHOLE])] == [0] * len(balances([WHOLE]))


def test_holes_in_the_batch_numbers_are_listed() -> None:
    entry = replace(WHOLE, batches=2, distinct=2, missing=[(1, 1), (3, 4)], last_seq=5)

    assert "4 batches are missing: seq 1, 3..4" in faults(entry)


def test_a_batch_stored_twice_is_told() -> None:
    assert "2 batches are stored twice" in faults(replace(WHOLE, batches=7))


def test_rows_that_nobody_accounts_for_are_counted() -> None:
    entry = replace(WHOLE, stored={**NOTHING, "scalars": 7})

    assert faults(entry) == [
        "scalars: 7 rows are stored and the ledger's batches hold 8",
        "scalars: 10 rows were emitted, 7 are stored and 2 declared lost",
    ]


@pytest_asyncio.fixture
async def store(clickhouse_front: Store) -> AsyncIterator[ClickHouseStore]:
    """The service's store over an empty database with the tables."""
    migrate(clickhouse_front.client)
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": clickhouse_front.url})
    opened = ClickHouseStore(ClickHouse(settings, Metrics()))
    yield opened
    await opened.close()


async def test_the_ledger_finds_holes_copies_and_vanished_rows(store: ClickHouseStore, clickhouse_front: Store) -> None:
    holes, copies, vanished = (Writer("r", rank) for rank in range(3))
    insert(clickhouse_front.client, holes.seal(scalars=[LOSS]), token="0")
    holes.skip()
    holes.skip()
    insert(clickhouse_front.client, holes.seal(scalars=[LOSS]), token="1")
    twice = copies.seal(scalars=[LOSS])
    insert(clickhouse_front.client, twice, token="2")
    insert(clickhouse_front.client, twice, token="3")
    insert(clickhouse_front.client, vanished.seal(scalars=[LOSS, LOSS]), token="4")
    clickhouse_front.client.command("ALTER TABLE scalars DELETE WHERE rank = 2 SETTINGS mutations_sync = 1")

    entries = await store.ledger.entries(RunKey("default", "r"))

    assert [faults(entry) for entry in entries] == [
        ["2 batches are missing: seq 1..2"],
        [
            "1 batches are stored twice",
            "scalars: 2 rows are stored and the ledger's batches hold 1",
            "scalars: 1 rows were emitted, 2 are stored and 0 declared lost",
        ],
        [
            "scalars: 0 rows are stored and the ledger's batches hold 2",
            "scalars: 2 rows were emitted, 0 are stored and 0 declared lost",
        ],
    ]
