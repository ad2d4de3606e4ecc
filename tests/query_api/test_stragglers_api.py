"""Who makes the others wait, asked over HTTP: charged where that is certain, said to be unknown where it is not."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.names import COLLECTIVE_FLAGS
from rankscope_query_api.routes import waits
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import get, refused
from tests.query_api.batches import MS, START, Row, Writer
from tests.query_api.conftest import over
from tests.query_api.meetings import CLOCK_ERROR_NS, STEP_NS, Told

SLOW, EVERY, LATE_NS = 2, 5, 30 * MS
HOUR_NS = 3600 * 1000 * MS
SECOND, SMALL = b"M" * 16, b"N" * 16


def slow_input(rank: int, step: int) -> int:
    """Rank 2 is late in every fifth step."""
    return LATE_NS if rank == SLOW and step % EVERY == 0 else 0


def _without_last(rank: int, row: dict[str, Any]) -> dict[str, Any] | None:
    return None if rank == 3 else row


def _still_going(rank: int, row: dict[str, Any]) -> dict[str, Any] | None:
    return None if rank == 3 and row["cseq"] == 80 else row


def _odd(rank: int, row: dict[str, Any]) -> dict[str, Any]:
    if rank == 1 and row["cseq"] == 31:
        return {**row, "op": "broadcast"}
    if rank == 1 and row["cseq"] == 35:
        # What the flight recorder calls an operation is not held against what the calls do.
        return {**row, "op": "all_gather", "bytes": 16384, "entry_source": "recorder"}
    return {**row, "bytes": 4092} if rank == 1 and row["cseq"] == 33 else row


def _pairs(rank: int, row: dict[str, Any]) -> dict[str, Any]:
    """The second of each step is a call between two ranks."""
    del rank
    return {**row, "cseq": 0, "flags": COLLECTIVE_FLAGS["p2p"]} if row["cseq"] % 2 == 0 else row


def _halves(rank: int, row: dict[str, Any]) -> dict[str, Any] | None:
    """Two groups of one name, as a group that is split has them; of each the second rank has sent nothing."""
    return None if rank % 2 else {**row, "group_ranks": "0-1" if rank < 2 else "2-3"}


def _background(rank: int, row: dict[str, Any]) -> dict[str, Any]:
    """The first of a step is not waited for, and the second comes right behind it: both as late."""
    if row["cseq"] % 2:
        return {**row, "flags": 2, "exit": None, "exit_source": ""}
    begin = START + row["step"] * STEP_NS + 30 * MS + slow_input(rank, row["step"])
    return {**row, "entry": begin + 2 * MS + rank * 1000}


TOLD = (
    Told("fifth", slow_input),
    Told("apart", slow_input, ahead_ns={1: HOUR_NS, 2: -7 * HOUR_NS, 3: 250 * MS}),
    Told("unmeasured", slow_input, ahead_ns={1: HOUR_NS, 2: -7 * HOUR_NS}, is_measured=False),
    Told("absent", slow_input, change=_without_last),
    Told("going", slow_input, change=_still_going),
    Told("odd", change=_odd),
    Told("halves", change=_halves, steps=2),
    Told("pairs", change=_pairs, steps=2),
    Told("background", slow_input, change=_background),
    Told("clean"),
    Told("restarted", slow_input, steps=20),
    Told("restarted", launch=SECOND, steps=20),
    Told("shrunk", slow_input),
    Told("shrunk", lambda rank, step: LATE_NS if rank == 1 and step % 4 == 0 else 0, ranks=2, launch=SMALL),
)


def _twice() -> Iterator[Any]:
    """Two processes have rank 1."""
    told = Told("twice", slow_input)
    yield from told.batches()
    second = Writer("twice", 1, launch=told.launch).seal(collectives=told.collectives(1))
    second.header.incarnation = b"second".ljust(16)
    yield second


def _mixed_up() -> Iterator[Any]:
    """The steps come backwards, in four batches, and one of these is stored twice."""
    told = Told("mixed", slow_input)
    for rank, writer in told.writers().items():
        rows = told.collectives(rank)[::-1]
        for begin in range(0, len(rows), 20):
            yield writer.seal(sealed_ns=START, collectives=rows[begin : begin + 20])
        yield writer.seal(sealed_ns=START + 10**11, spans=told.spans(rank)[::-1])
    yield from list(told.batches())[-1:]


@pytest.fixture(scope="module")
def stored(front_process: FrontProcess) -> Iterator[Store]:
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *(batch for told in TOLD for batch in told.batches()))
    insert(store.client, *_twice(), token="twice")
    mixed = list(_mixed_up())
    insert(store.client, *mixed, token="mixed")
    insert(store.client, mixed[1], token="again")
    yield store
    store.drop()


@pytest_asyncio.fixture
async def api(stored: Store) -> AsyncIterator[httpx.AsyncClient]:
    async with over(stored) as opened:
        yield opened


async def stragglers(api: httpx.AsyncClient, run: str, /, **query: str | int) -> dict[str, Any]:
    return await get(api, f"/api/v1/runs/{run}/stragglers", **query)


def accused(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in answer["items"] if item["is_straggler"]]


@pytest.mark.parametrize("run", ["fifth", "apart", "mixed", "background"])
async def test_a_rank_that_is_late_in_every_fifth_step_is_found_with_its_cause(
    api: httpx.AsyncClient, run: str
) -> None:
    answer = await stragglers(api, run)

    [item] = accused(answer)
    assert (answer["judged_by"], item["rank"], item["every"], item["cause"]) == ("collectives", SLOW, EVERY, "input")
    # Steps 0 to 39 are all charged, and the others waited 30 ms each in eight of them.
    assert int(item["charged_ns"]) == pytest.approx(3 * 8 * LATE_NS, rel=0.05)
    assert item["causes"][0]["cause"] == "input"
    # What a rank did before the first collective of all is not known: when it was freed is not.
    assert int(item["causes"][0]["wait_ns"]) == pytest.approx(3 * 7 * LATE_NS, rel=0.05)
    assert item["confidence"] > 0.99
    assert item["share_of_step"] == pytest.approx(LATE_NS / STEP_NS, rel=0.1)
    assert {place["step"] % EVERY for place in item["worst"]} == {0}


async def test_nobody_is_accused_in_a_clean_run(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "clean")

    assert not accused(answer)
    assert answer["collectives"] == 80


async def test_clocks_that_nobody_measured_charge_nobody_and_the_waits_are_of_nobody(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "unmeasured")

    assert answer["items"] == []
    assert (answer["charged_ns"], answer["uncharged"]) == ("0", {"unmeasured": 80})
    # How long each rank stayed needs no clock but its own.
    assert int(answer["uncertain_ns"]) == pytest.approx(3 * 8 * LATE_NS, rel=0.05)
    assert answer["clock"]["unmeasured_ranks"] == [0, 1, 2, 3]
    assert "clock was measured" in answer["warnings"][0]


async def test_a_rank_without_data_leaves_its_collectives_open(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "absent")

    assert answer["items"] == []
    assert answer["uncharged"] == {"incomplete": 80}
    assert answer["unmatched"][0]["arrived"] == [0, 1, 2]
    # It was heard of a minute later, and has not come.
    assert answer["unmatched"][0]["missing_ranks"] == [3]


async def test_of_a_run_still_going_the_last_collective_is_open_and_the_others_count(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "going")

    assert [item["rank"] for item in accused(answer)] == [SLOW]
    assert answer["uncharged"]["incomplete"] == 1
    assert answer["unmatched"][0]["seq"] == 80


async def test_two_processes_of_a_rank_charge_nobody(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "twice")

    assert answer["uncharged"] == {"duplicate": 80}
    assert (answer["items"], answer["total_wait_ns"]) == ([], "0")


async def test_collectives_that_differ_are_told_and_charge_nobody(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "odd")

    told = {place["seq"]: (place["reason"], place["ops"]) for place in answer["unmatched"]}
    assert told == {31: ("op", ["all_reduce", "broadcast"]), 33: ("size", ["all_reduce"])}


async def test_two_groups_of_one_name_are_told_apart_by_their_ranks(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "halves")

    told = {(place["seq"], *place["group_ranks"]): place for place in answer["unmatched"]}
    assert len(told) == 8
    assert all((one["arrived"], one["missing_ranks"]) == ([low], [high]) for (_, low, high), one in told.items())


async def test_a_restart_counts_anew_and_the_launch_is_the_latest_one(api: httpx.AsyncClient) -> None:
    latest = await stragglers(api, "restarted")
    first = await stragglers(api, "restarted", launch="0", **{"from": 0})

    assert (latest["launch_id"], accused(latest)) == (SECOND.hex(), [])
    assert latest["collectives"] == first["collectives"] == 40
    assert int(first["items"][0]["charged_ns"]) == pytest.approx(3 * 4 * LATE_NS, rel=0.05)


async def test_another_number_of_ranks_is_matched_in_its_own_launch(api: httpx.AsyncClient) -> None:
    few = await stragglers(api, "shrunk")

    [item] = accused(few)
    assert (item["rank"], item["every"]) == (1, 4)
    assert few["uncharged"].get("incomplete", 0) == 0


async def test_waits_are_counted_by_node(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "fifth", by="node")

    [item] = accused(answer)
    assert (item["name"], item["ranks"], item["rank"]) == ("node-1", [2, 3], None)
    # Rank 3 is of the same node: its waits are the node's own.
    assert int(item["charged_ns"]) == pytest.approx(2 * 8 * LATE_NS, rel=0.05)


async def test_an_axis_that_no_rank_has_is_refused(api: httpx.AsyncClient) -> None:
    error = await refused(api, "/api/v1/runs/fifth/stragglers", status=422, by="mesh.dp")

    assert "mesh" in error["message"]


async def test_only_the_steps_that_are_asked_for_are_judged(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "fifth", **{"from": 11, "to": 14})

    assert answer["judged_steps"] == {"from": 11, "to": 14}
    assert answer["collectives"] == 8
    assert not accused(answer)


async def test_calls_between_two_ranks_are_rows_that_are_read_and_no_collectives(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await stragglers(api, "pairs", **{"from": 0})
    monkeypatch.setattr(waits, "MOST_ARRIVALS", 8)
    latest = await stragglers(api, "pairs", **{"from": 0})

    assert (whole["judged_steps"], whole["collectives"]) == ({"from": 0, "to": 1}, 2)
    assert (latest["judged_steps"], latest["collectives"]) == ({"from": 1, "to": 1}, 1)
    assert "only the latest steps" in latest["warnings"][0]


async def test_the_error_of_the_clock_is_that_of_the_times_that_are_judged(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "fifth", **{"from": 0, "to": 3})

    # Ranks were heard of a minute later, and by then a clock may have drifted by more.
    assert CLOCK_ERROR_NS <= int(answer["clock"]["error_ns"]) < CLOCK_ERROR_NS * 1.1
    assert answer["clock"]["unmeasured_ranks"] == []


async def test_the_time_of_the_collectives_themselves_is_told_apart(api: httpx.AsyncClient) -> None:
    answer = await stragglers(api, "clean")

    assert int(answer["transfer_ns"]) == pytest.approx(80 * MS, rel=0.05)
    assert int(answer["worst_transfers"][0]["usual_ns"]) == pytest.approx(MS, rel=0.05)


async def test_the_rows_of_one_collective_are_neighbours(api: httpx.AsyncClient) -> None:
    page = await get(api, "/api/v1/runs/fifth/collectives", step=5, seq=11, limit=3)

    rows: list[Row] = page["items"]
    assert [(row["rank"], row["seq"], row["op"]) for row in rows] == [(rank, 11, "all_reduce") for rank in range(3)]
    assert page["total"] == 4
    rest = await get(api, "/api/v1/runs/fifth/collectives", step=5, seq=11, limit=3, after=page["next"])
    assert [row["rank"] for row in rest["items"]] == [3]
    assert rows[0]["duration_ns"] == str(LATE_NS + MS)


async def test_the_rule_about_stragglers_finds_who_is_found_here(api: httpx.AsyncClient) -> None:
    checked = (await api.post("/api/v1/runs/fifth/check", json={"rules": ["straggler"]})).json()

    [finding] = checked["findings"]
    assert (finding["rank"], finding["evidence"]["every"], finding["evidence"]["cause"]) == (SLOW, EVERY, "input")
    assert f"rank {SLOW} makes the others wait in every {EVERY}. step" in finding["sentence"]
