"""Emitted = stored + lost: what was declared lost, by whom ever, against what is there after all."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_proto.v1 import batch_pb2 as pb
from rankscope_query_api.losses import Arrived, Loss, Range, distinct, standing
from tests.ground.stores import Store
from tests.proto.batches import insert
from tests.query_api.asking import get
from tests.query_api.batches import START, Row, S, Writer, heard

LOSS: Row = {"name": "loss", "step": 0, "value": 1.0, "time": START}
END: Row = {"time": START, "kind": "end_of_stream", "name": "end of stream", "severity": 2}
SERVER, AGENT = 4, 7
"""Codes of process roles."""

numbers = st.sets(st.integers(0, 40))
ranges = st.tuples(st.integers(0, 45), st.integers(0, 45)).map(lambda pair: (min(pair), max(pair)))


def arrived(numbers_there: set[int]) -> Arrived:
    """What a ledger with these batches says."""
    last = max(numbers_there, default=-1)
    holes: list[Range] = []
    for number in sorted(set(range(last + 1)) - numbers_there):
        if holes and holes[-1][1] == number - 1:
            holes[-1] = holes[-1][0], number
        else:
            holes.append((number, number))
    return Arrived(last, holes)


@given(numbers, ranges)
def test_how_many_batches_of_a_range_are_there(there: set[int], asked: Range) -> None:
    expected = len(there & set(range(asked[0], asked[1] + 1)))

    assert arrived(there).among(asked) == expected


@given(numbers, st.lists(ranges, max_size=4))
def test_a_missing_batch_that_a_statement_covers_is_no_fault(there: set[int], excuses: list[Range]) -> None:
    covered = {number for first, last in excuses for number in range(first, last + 1)}
    missing = set(range(max(there, default=-1) + 1)) - there - covered

    left = arrived(there).unexcused(excuses)

    assert {number for first, last in left for number in range(first, last + 1)} == missing


def lost(rows: int, batches: Range | None, *, cause: str = "quarantined") -> Loss:
    return Loss("aa", "scalars", cause, rows, batches)


@pytest.mark.parametrize(
    ("loss", "rows_there", "expected"),
    [
        (lost(5, None), 0, 5),
        (lost(5, (2, 2)), 0, 5),
        (lost(5, (1, 1)), 5, 0),
        (lost(5, (0, 1)), 5, 0),
        (lost(9, (1, 2)), 4, 5),
        (lost(5, (7, 9)), 0, 5),
        (lost(1, (1, 2)), 4, 0),
    ],
)
def test_a_statement_is_void_for_batches_that_are_there_after_all(loss: Loss, rows_there: int, expected: int) -> None:
    assert standing(loss, arrived({0, 1, 3}), rows_there=rows_there) == expected


def test_the_same_loss_stated_twice_counts_once() -> None:
    once = lost(6, (3, 5))
    again = [lost(6, (3, 5)), lost(2, (4, 4), cause="spool_corrupt"), lost(0, (3, 5), cause="conflict")]
    other = Loss("aa", "spans", "quarantined", 6, (3, 5))

    assert distinct([*again, once, other]) == [once, other]
    assert distinct([lost(1, None), lost(1, None)]) == [lost(1, None)] * 2


class Told:
    """Statements about a process by another one, each a batch and an incarnation of its own, as tiers write them."""

    def __init__(self, run: str, *, role: int = SERVER) -> None:
        self._run = run
        self._role = role
        self._count = 0

    def of(self, writer: Writer, *gaps: Row) -> pb.Batch:
        self._count += 1
        teller = Writer(self._run, writer.rank, launch=writer.launch)
        high, low = (int.from_bytes(half, "big") for half in (incarnation_of(writer)[:8], incarnation_of(writer)[8:]))
        named = {"class": 1, "data_kind": "scalars", "start": START, "incarnation_hi": high, "incarnation_lo": low}
        batch = teller.seal(gaps=[{**named, **gap} for gap in gaps])
        batch.header.incarnation = bytes([self._role]) * 15 + bytes([self._count])
        batch.header.process_role = self._role
        return batch


def incarnation_of(writer: Writer) -> bytes:
    return writer.launch[:8] + (writer.rank + 1).to_bytes(8, "big")


def quarantined(rows: int, first: int, last: int | None = None) -> Row:
    return {"cause": "quarantined", "count": rows, "seq_from": first, "seq_to": first if last is None else last}


async def completeness(api: httpx.AsyncClient) -> dict[str, Any]:
    return await get(api, "/api/v1/runs/r/completeness")


async def gaps_of(api: httpx.AsyncClient) -> list[dict[str, Any]]:
    return (await get(api, "/api/v1/runs/r"))["gaps"]


def scalars(answer: dict[str, Any]) -> tuple[int, int, int, int]:
    """Emitted, stored, lost and missing rows of the metrics."""
    (found,) = [one for one in answer["sections"] if one["section"] == "scalars"]
    return found["emitted"], found["stored"], found["lost"], found["missing"]


def faults(answer: dict[str, Any]) -> Sequence[str]:
    return [fault for process in answer["processes"] for fault in process["faults"]]


async def test_a_batch_set_aside_in_the_middle_is_lost_until_it_is_replayed(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    writer, told = Writer("r", 0), Told("r")
    first, bad, last = writer.seal(scalars=[LOSS]), writer.seal(scalars=[LOSS] * 2), writer.seal(events=[END])
    insert(own.client, first, last, token="0")
    silent = await completeness(api_of_own)
    insert(own.client, told.of(writer, quarantined(2, 1)), token="1")
    stated, shown = await completeness(api_of_own), await gaps_of(api_of_own)
    insert(own.client, bad, token="2")
    replayed, shown_again = await completeness(api_of_own), await gaps_of(api_of_own)

    assert faults(silent) == [
        "1 batches are missing: seq 1",
        "scalars: 3 rows were emitted, 1 are stored and 0 declared lost",
    ]
    assert (scalars(stated), faults(stated), stated["state"]) == ((3, 1, 2, 0), [], "complete")
    assert (scalars(replayed), faults(replayed), replayed["state"]) == ((3, 3, 0, 0), [], "complete")
    assert [[gap["cause"] for gap in gaps] for gaps in (shown, shown_again)] == [["quarantined"], []]
    assert sum(process["lost_batches"] for process in stated["processes"]) == 1


async def test_a_batch_set_aside_at_the_end_was_emitted_though_no_header_says_so(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    writer, told = Writer("r", 0), Told("r")
    insert(own.client, writer.seal(scalars=[LOSS]), token="0")
    last = writer.seal(scalars=[LOSS] * 4, events=[END])
    gaps = quarantined(4, 1), {**quarantined(1, 1), "data_kind": "events"}
    insert(own.client, told.of(writer, *gaps), token="1")
    stated = await completeness(api_of_own)
    insert(own.client, last, token="2")
    replayed = await completeness(api_of_own)

    assert (scalars(stated), faults(stated)) == ((5, 1, 4, 0), [])
    assert (scalars(replayed), faults(replayed), replayed["state"]) == ((5, 5, 0, 0), [], "complete")


async def test_of_a_range_of_which_some_came_back_only_the_others_are_lost(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    writer, told = Writer("r", 0), Told("r", role=AGENT)
    batches = [writer.seal(scalars=[LOSS] * rows) for rows in (1, 2, 3, 4)] + [writer.seal(events=[END])]
    corrupt = {**quarantined(9, 1, 3), "cause": "spool_corrupt"}
    insert(own.client, batches[0], batches[2], batches[4], told.of(writer, corrupt), token="0")

    answer = await completeness(api_of_own)

    (section,) = [one for one in answer["sections"] if one["section"] == "scalars"]
    assert (scalars(answer), faults(answer), answer["state"]) == ((10, 4, 6, 0), [], "complete")
    assert section["lost_by_cause"] == {"spool_corrupt": 6}


async def test_a_loss_told_by_the_process_itself_and_again_by_its_agent_counts_once(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    writer, told = Writer("r", 0), Told("r", role=AGENT)
    insert(own.client, writer.seal(scalars=[LOSS]), token="0")
    writer.seal(scalars=[LOSS] * 5)
    own_words = {"class": 1, "cause": "spool_full", "data_kind": "scalars", "count": 5, "start": START}
    insert(own.client, writer.seal(gaps=[{**own_words, "seq_from": 1, "seq_to": 1}], events=[END]), token="1")
    insert(own.client, told.of(writer, quarantined(5, 1)), told.of(writer, quarantined(5, 1)), token="2")

    answer = await completeness(api_of_own)

    assert (scalars(answer), faults(answer), answer["state"]) == ((6, 1, 5, 0), [], "complete")


async def test_a_process_of_which_every_batch_was_set_aside_is_told_of(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    heard_of, unheard, told = Writer("r", 0), Writer("r", 3), Told("r")
    insert(own.client, heard_of.seal(events=[END]), told.of(unheard, quarantined(7, 0, 2)), token="0")

    answer = await completeness(api_of_own)

    (process,) = [one for one in answer["processes"] if one["batches"] == 0]
    assert (process["rank"], process["incarnation"], process["faults"]) == (3, incarnation_of(unheard).hex(), [])
    assert (scalars(answer), answer["state"]) == ((7, 0, 7, 0), "unfinished")


async def test_a_process_whose_agent_says_that_it_is_gone_is_unfinished_at_once(
    own: Store, api_of_own: httpx.AsyncClient
) -> None:
    writer, told = Writer("r", 0), Told("r", role=AGENT)
    insert(own.client, writer.seal(scalars=[LOSS]), token="0")
    heard(own, seconds_ago=1)
    before = await completeness(api_of_own)
    insert(own.client, told.of(writer, {"cause": "tail_unknown", "count": 0, "data_kind": ""}), token="1")
    heard(own, seconds_ago=1)
    after = await completeness(api_of_own)

    assert (before["state"], after["state"]) == ("so_far", "unfinished")
    assert faults(after) == []
    assert [process["last_word"] for process in after["processes"] if process["process_role"] == "trainer"] == [False]


async def test_a_resumed_run_tells_its_attempts_apart(own: Store, api_of_own: httpx.AsyncClient) -> None:
    killed = [Writer("r", rank, launch=b"A" * 16, world_size=2) for rank in range(2)]
    resumed = [Writer("r", rank, launch=b"B" * 16, world_size=2) for rank in range(2)]
    insert(own.client, *(writer.seal(scalars=[LOSS] * 2) for writer in killed), token="0")
    later = [writer.seal(sealed_ns=START + 60 * S, scalars=[LOSS] * 3, events=[END]) for writer in resumed]
    insert(own.client, *later, token="1")
    unfinished = await completeness(api_of_own)
    told = Told("r", role=AGENT)
    tails = [told.of(writer, {"cause": "tail_unknown", "count": 0, "data_kind": ""}) for writer in killed]
    insert(own.client, *tails, token="2")

    answer = await completeness(api_of_own)
    run = await get(api_of_own, "/api/v1/runs/r")

    launches = [(launch["launch_id"][:2], launch["attempt"], launch["state"]) for launch in answer["launches"]]
    assert launches == [("41", 0, "unfinished"), ("42", 1, "complete")]
    assert [scalars(launch) for launch in answer["launches"]] == [(4, 4, 0, 0), (6, 6, 0, 0)]
    assert (scalars(answer), faults(answer)) == ((10, 10, 0, 0), [])
    assert unfinished["launches"][1]["state"] == answer["launches"][1]["state"] == "complete"
    assert [launch["attempt"] for launch in run["launch_list"]] == [0, 1]
