"""A run that hangs, over HTTP: rows as agents write them, of clocks that lie, with what the ledger knows."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.names import Phase, ProcessRole
from rankscope_proto.v1 import batch_pb2 as pb
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import error_in, get
from tests.query_api.batches import Row, S, Writer
from tests.query_api.conftest import over

HOURS_OFF = 5 * 3600 * S
"""By which the clock of one node's agent is wrong."""


def _row(
    rank: int, now: int, *, state: str = "waiting", done: int = 43, still_s: float | None = 7, **more: object
) -> Row:
    incarnation = Writer("x", rank).seal().header.incarnation
    return {
        "time": now,
        "of_hi": int.from_bytes(incarnation[:8], "big"),
        "of_lo": int.from_bytes(incarnation[8:], "big"),
        "state": state,
        "group": "0",
        "enqueued": done + (state in ("waiting", "dead")),
        "completed": done,
        "op": "all_reduce",
        "shape": "64x64",
        "since": None if still_s is None else now - int(still_s * S),
        "step": 12,
        "phase": Phase.BACKWARD.code,
        "stack": '[{"frame": "train.py:7"}]' if state != "waiting" else "",
        **more,
    }


def _usual(received: int, gap_s: float) -> list[Row]:
    """Collectives of rank 0 before the one that hangs, so far apart."""
    shared: Row = {"group": "0", "group_ranks": "0-2", "op": "all_reduce"}
    return [{**shared, "cseq": cseq, "entry": received + int(cseq * gap_s * S)} for cseq in range(20, 44)]


def _told(run: str, rows: Sequence[Sequence[Row]], *, received: int, offsets: Sequence[int]) -> Iterator[pb.Batch]:
    """The batches of a run with an agent for each sequence of rows, and of its three trainers."""
    for rank in range(3):
        collective: Row = {
            "entry": received - 60 * S,
            "group": "0",
            "group_ranks": "0-2",
            "cseq": 44,
            "op": "all_reduce",
            "shape": "64x64",
            "module": "layers.1",
        }
        rows_of = [collective, *_usual(received, 4 if run == "slow" else 0.1)] if rank == 0 else []
        end: Row = {"time": received, "kind": "end_of_stream", "name": "end", "severity": 2}
        events = [end] if run == "left" and rank else []
        made = Writer(run, rank, world_size=3).seal(sealed_ns=received, collectives=rows_of, events=events)
        made.received = received
        yield made
    for number, (own, offset) in enumerate(zip(rows, offsets, strict=True)):
        agent = Writer(run, -1, launch=b"L" * 16, role=ProcessRole.AGENT)
        made = agent.seal(sealed_ns=received + offset, standings=own)
        made.header.incarnation = bytes([200 + number]) * 16
        made.received = received
        yield made


@pytest.fixture(scope="module")
def hanging(front_process: FrontProcess) -> Iterator[Store]:
    """A run whose rank 1 did not come, one that goes on, and one that is known from its ledger alone."""
    store = Store(front_process.url)
    migrate(store.client)
    now = time.time_ns()
    off = now + HOURS_OFF
    missing = [
        [_row(0, now), _row(1, now, state="running", still_s=9), _row(0, now - 5 * S, done=42)],
        [_row(2, off)],
    ]
    well = [[_row(rank, now, state="running", still_s=None) for rank in range(3)]]
    made = [
        *_told("hangs", missing, received=now, offsets=(0, HOURS_OFF)),
        *_told("runs", well, received=now, offsets=(0,)),
        *_told("slow", missing, received=now, offsets=(0, HOURS_OFF)),
        *_told("left", [[_row(0, now)]], received=now, offsets=(0,)),
        Writer("untold", 0).seal(sealed_ns=now),
        Writer("hangs", 0, project="other").seal(sealed_ns=now),
    ]
    insert(store.client, *made)
    yield store
    store.drop()


@pytest_asyncio.fixture
async def api(hanging: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    async with over(hanging) as opened:
        yield opened


async def test_a_rank_that_did_not_come_is_named_whatever_the_clocks_of_the_agents_say(api: httpx.AsyncClient) -> None:
    found = await get(api, "/api/v1/runs/hangs/hang", threshold="unheard_s=80000")

    verdict = found["verdict"]
    assert (verdict["kind"], verdict["ranks"], verdict["group"], verdict["seq"]) == ("rank_missing", [1], "0", 44)
    assert (verdict["op"], verdict["module"], verdict["phase"], verdict["step"]) == (
        "all_reduce",
        "layers.1",
        "backward",
        12,
    )
    assert verdict["stack"] == [{"frame": "train.py:7"}]
    assert found["waiting"] == [0, 2]
    assert [(one["rank"], one["state"], one["seq"], one["over"]) for one in found["processes"]] == [
        (0, "waiting", 44, 43),
        (1, "running", 43, 43),
        (2, "waiting", 44, 43),
    ]
    assert int(found["as_of_ns"]) - int(verdict["since_ns"]) >= 7 * S


async def test_a_run_whose_collectives_are_far_apart_is_given_more_time(api: httpx.AsyncClient) -> None:
    assert (await get(api, "/api/v1/runs/slow/hang"))["verdict"] is None
    asked = {"threshold": ["times_gap=1", "times_longest=1"]}
    found = (await api.get("/api/v1/runs/slow/hang", params=asked)).json()
    assert found["verdict"]["kind"] == "rank_missing"


async def test_ranks_that_said_their_last_word_are_told_as_ended_though_no_agent_saw_them(
    api: httpx.AsyncClient,
) -> None:
    found = await get(api, "/api/v1/runs/left/hang")

    assert (found["verdict"]["kind"], found["verdict"]["ranks"]) == ("rank_missing", [1, 2])
    assert "they have ended" in found["verdict"]["sentence"]
    assert [one["state"] for one in found["processes"]] == ["waiting", "ended", "ended"]


async def test_a_run_that_goes_on_has_no_verdict_and_shows_its_processes(api: httpx.AsyncClient) -> None:
    found = await get(api, "/api/v1/runs/runs/hang")

    assert (found["verdict"], found["waiting"]) == (None, [])
    assert [one["since_ns"] for one in found["processes"]] == [None] * 3


async def test_thresholds_are_shown_and_can_be_changed(api: httpx.AsyncClient) -> None:
    found = await get(api, "/api/v1/runs/hangs/hang", threshold="still_s=86400")

    assert found["verdict"] is None
    assert found["thresholds"]["still_s"] == 86400
    for wrong in ("still_s", "stil_s=3", "still_s=-1", "still_s=nan"):
        error = error_in(await api.get("/api/v1/runs/hangs/hang", params={"threshold": wrong}), status=422)
        assert "still_s" in error["expected"]


async def test_a_run_that_no_agent_tells_of_is_not_judged_and_says_so(api: httpx.AsyncClient) -> None:
    found = await get(api, "/api/v1/runs/untold/hang")

    assert (found["verdict"], found["processes"]) == (None, [])
    assert "no agent says" in found["warnings"][0]


async def test_another_project_s_run_of_the_same_name_shows_nothing_of_it(api: httpx.AsyncClient) -> None:
    found = await get(api, "/api/v1/runs/hangs/hang", project="other")

    assert (found["verdict"], found["processes"]) == (None, [])
