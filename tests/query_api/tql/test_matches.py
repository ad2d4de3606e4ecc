"""What a collective says of its ranks: on one clock, of all of them, and of the last only where it is the last."""

from collections.abc import Iterator
from typing import Any

import pytest

from rankscope_proto.names import COLLECTIVE_FLAGS, ProcessRole
from rankscope_proto.v1 import batch_pb2 as pb
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import MS, START, Row, Writer
from tests.query_api.tql.conftest import Asked

MEASURED, BARE = "measured", "bare"
HOUR = 3600 * 1000 * MS

OFFSETS = {0: 0, 1: 0, 2: -250 * MS, 3: -250 * MS}
"""Rank -> what its clock has to be added; ranks 0 and 1, and 2 and 3, share a node."""

ERROR = 2 * MS
DRIFT = 1000
"""In ns a second: 3.6 ms an hour, and next to nothing in the seconds of the rows."""


def _at(cseq: int, rank: int, arrives_ms: float, /, **more: Any) -> Row:
    entry = START + cseq * 1000 * MS + int(arrives_ms * MS) - OFFSETS[rank]
    return {"group": "0", "group_ranks": "0-3", "cseq": cseq, "op": "all_reduce", "step": cseq, "entry": entry, **more}


ARRIVALS: dict[int, tuple[float, float, float, float]] = {1: (0, 10, 20, 60), 2: (0, 0, 30, 29.5), 3: (40, 5, 41, 5)}
"""Collective -> when each rank comes, in ms."""


GROUPS = {"0": {0, 1, 2, 3}, "pair": {0, 3}, "near": {0, 1}, "half": {0, 1, 2, 3}}


def _collectives(rank: int) -> list[Row]:
    rows = [_at(cseq, rank, arrives[rank]) for cseq, arrives in ARRIVALS.items()]
    rows.append(_at(9, rank, rank, cseq=0, flags=COLLECTIVE_FLAGS["p2p"], step=9))
    rows.append(_at(4, rank, 7.0 * rank, group="pair", group_ranks="0,3"))
    rows.append(_at(4, rank, 7.0 * rank, group="near", group_ranks="0-1"))
    rows.append(_at(4, rank, 7.0 * rank, group="half", group_ranks="0-1" if rank < 2 else "2-3"))
    if rank != 2:
        rows.append(_at(5, rank, rank))
    rows.append(_at(6, rank, rank))
    if rank == 1:
        rows.append(_at(6, rank, 90))
    return [row for row in rows if rank in GROUPS[row["group"]]]


def _clock(process: bytes, offset: int, *, time: int, drift: int | None = None, server: str = "gateway") -> Row:
    of = {"of_hi": int.from_bytes(process[:8], "big"), "of_lo": int.from_bytes(process[8:], "big")}
    return {**of, "time": time, "offset": offset, "error": ERROR, "drift": drift, "server": server, "rtt": 1}


def _clocks(writer: Writer, offset: int) -> list[Row]:
    """Said once an hour before the rows, as it grew since, and once an hour behind them, when it is another one."""
    before = _clock(writer.incarnation, offset - 3600 * DRIFT, time=START - HOUR, drift=DRIFT)
    return [_clock(writer.incarnation, offset + HOUR, time=START + HOUR), before]


def _batches(run: str, *, project: str = "default") -> Iterator[pb.Batch]:
    writers = {rank: Writer(run, rank, project=project) for rank in OFFSETS}
    for rank, writer in writers.items():
        yield writer.seal(collectives=_collectives(rank))
    if run == MEASURED:
        agent = Writer(run, -1, project=project, launch=b"A" * 16, role=ProcessRole.AGENT)
        rows = [row for rank, offset in OFFSETS.items() for row in _clocks(writers[rank], offset)]
        # Another server, of which only one process knows, is nobody's clock.
        rows.append(_clock(writers[2].incarnation, 7 * HOUR, time=START - 1, server="another"))
        yield agent.seal(clocks=rows)


@pytest.fixture(scope="module")
def ask(front_process: FrontProcess) -> Iterator[Asked]:
    """Two runs of four ranks on two nodes: the clocks of one were measured. Another project has the same."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *_batches(MEASURED), *_batches(BARE), *_batches(MEASURED, project="other"))
    yield Asked(store.client)
    store.drop()


def _told(ask: Asked, what: str, cseq: int, /, *, run: str = MEASURED, group: str = "0") -> dict[int, Any]:
    """Of each rank what is there; durations in tenths of a ms."""
    text = f'collective.group == "{group}" and collective.seq == {cseq} | select rank, collective.{what}'
    return {rank: _rounded(value) for rank, value, *_ in ask.page(text, run=run).rows}


def _rounded(value: int | None) -> float | None:
    return value if value is None or value < 10 else round(value / MS, 1)


def test_a_rank_waits_from_its_arrival_to_the_last_ones_whatever_their_clocks_say(ask: Asked) -> None:
    waits = _told(ask, "wait", 1)

    assert waits == {0: 60, 1: 50, 2: 40, 3: 0}
    assert _told(ask, "skew", 1) == dict.fromkeys(range(4), 60)
    assert _told(ask, "arrived", 1) == dict.fromkeys(range(4), 4)


def test_the_last_rank_is_charged_with_what_all_waited(ask: Asked) -> None:
    assert _told(ask, "wait_charged", 1) == {0: None, 1: None, 2: None, 3: 150}


def test_on_one_node_a_hair_is_enough_and_between_nodes_it_is_not(ask: Asked) -> None:
    one_node = _told(ask, "wait_charged", 2)
    two_nodes = _told(ask, "wait_charged", 3)

    assert one_node == {0: None, 1: None, 2: 60.5, 3: None}
    assert two_nodes == dict.fromkeys(range(4))
    assert _told(ask, "skew", 3)[0] == 36


def test_between_nodes_whose_clocks_nobody_measured_no_wait_is_made_up(ask: Asked) -> None:
    assert _told(ask, "skew", 1, run=BARE) == dict.fromkeys(range(4))
    assert _told(ask, "arrived", 1, run=BARE) == dict.fromkeys(range(4), 4)
    assert _told(ask, "wait", 4, run=BARE, group="near") == {0: 7, 1: 0}


def test_a_group_has_the_ranks_that_it_names(ask: Asked) -> None:
    assert _told(ask, "wait_charged", 4, group="pair") == {0: None, 3: 21}


def test_groups_of_one_name_and_other_ranks_do_not_wait_for_each_other(ask: Asked) -> None:
    assert _told(ask, "wait", 4, group="half") == {0: 7, 1: 0, 2: 7, 3: 0}
    assert _told(ask, "arrived", 4, group="half") == dict.fromkeys(range(4), 2)


def test_nothing_is_said_before_all_ranks_are_there_or_where_one_came_twice(ask: Asked) -> None:
    missing, twice = _told(ask, "wait", 5), _told(ask, "wait_charged", 6)

    assert missing == {0: None, 1: None, 3: None}
    assert _told(ask, "arrived", 5)[0] == 3
    assert set(twice.values()) == {None}


def test_what_goes_from_rank_to_rank_meets_nobody(ask: Asked) -> None:
    found = ask.page("collective.p2p == true | select rank, collective.arrived, collective.wait", run=MEASURED)

    assert {row[1:3] for row in found.rows} == {(None, None)}


def test_who_is_charged_is_asked_over_all_runs_and_of_one_project(ask: Asked) -> None:
    found = ask.page("collective.wait_charged > 1ms | sum(collective.wait_charged) by run.id, rank | order by rank")
    own = ask.page("exists(collective.op) | count() by run.id")

    charged = {(run, rank): _rounded(value) for run, rank, value, *_ in found.rows}
    assert {rank: value for (run, rank), value in charged.items() if run == MEASURED} == {1: 14, 2: 60.5, 3: 178}
    assert sum(row[1] for row in own.rows) == len([row for rank in OFFSETS for row in _collectives(rank)]) * 2
