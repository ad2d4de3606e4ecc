"""What is missing is said, and by how much."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.columns import SECTIONS
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.completeness import Completeness, balances, faults, is_silent, said_last_word, state_of
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from rankscope_query_api.values import LedgerEntry, RunKey
from tests.ground.stores import Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import get
from tests.query_api.batches import START, Row, S, Writer, heard

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
    heard_ns=START,
    silent_ns=0,
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


OPEN = replace(WHOLE, ended=False)
SILENT = replace(OPEN, silent_ns=61 * S)
LACKING = replace(WHOLE, stored=NOTHING)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([WHOLE, WHOLE], "complete"),
        ([WHOLE, replace(WHOLE, silent_ns=999 * S)], "complete"),
        ([WHOLE, OPEN], "so_far"),
        ([OPEN, SILENT], "unfinished"),
        ([WHOLE, SILENT], "unfinished"),
        ([WHOLE, LACKING], "incomplete"),
        ([LACKING, OPEN, SILENT], "incomplete"),
    ],
)
def test_complete_is_what_has_ended_and_adds_up(entries: list[LedgerEntry], expected: str) -> None:
    assert state_of(entries) == expected


def test_the_states_are_a_closed_vocabulary() -> None:
    assert list(Completeness) == ["complete", "so_far", "unfinished", "incomplete"]


def test_a_process_that_said_its_last_word_is_never_silent() -> None:
    assert not is_silent(replace(WHOLE, silent_ns=999 * S))
    assert is_silent(SILENT)
    assert not is_silent(replace(OPEN, silent_ns=60 * S))


def test_the_one_batch_of_a_server_is_its_last_word() -> None:
    # The gateway writes each of its events under an incarnation of its own, and no end of a stream.
    server = replace(SILENT, process_role="server", rank=-1)

    assert said_last_word(server)
    assert state_of([WHOLE, server]) == "complete"


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


END: Row = {"time": START, "kind": "end_of_stream", "name": "end of stream", "severity": 2}


async def test_a_run_is_complete_so_far_until_it_says_its_last_word_and_unfinished_if_it_never_does(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    path = "/api/v1/runs/r/completeness"
    first, second = Writer("r", 0), Writer("r", 1)
    insert(own.client, first.seal(scalars=[LOSS], events=[END]), second.seal(scalars=[LOSS]), token="0")
    heard(own, seconds_ago=1)
    so_far = await get(api_of_own, path)
    heard(own, seconds_ago=90)
    unfinished = await get(api_of_own, path)
    insert(own.client, second.seal(events=[END]), token="1")
    complete = await get(api_of_own, path)

    assert [answer["state"] for answer in (so_far, unfinished, complete)] == ["so_far", "unfinished", "complete"]
    assert [(answer["complete"], answer["ended"]) for answer in (so_far, unfinished, complete)] == [
        *((False, False), (False, False), (True, True))
    ]
    assert [process["last_word"] for process in so_far["processes"]] == [True, False]
    assert [process["silent_since"] is None for process in so_far["processes"]] == [True, True]
    assert [process["silent_since"] is None for process in unfinished["processes"]] == [True, False]
    assert [process["silent_since"] for process in complete["processes"]] == [None, None]
    assert not any(process["faults"] for process in unfinished["processes"])
