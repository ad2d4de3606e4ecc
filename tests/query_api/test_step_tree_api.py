"""Trees of steps that something is wrong with: clocks, ranks, launches, order; each answer says what is not known."""

import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.names import GapClass, ProcessRole, SpanStatus
from rankscope_proto.v1 import batch_pb2 as pb
from rankscope_query_api.ranks.missing import MOST_ABSENT
from rankscope_query_api.ranks.step_groups import Groups, grouped
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api import story
from tests.query_api.asking import get, refused
from tests.query_api.batches import MS, START, Row, Writer
from tests.query_api.conftest import over

FIRST, SECOND = b"1" * 16, b"2" * 16
HOURS = 5 * 3_600_000 * MS
FAR_AHEAD = START * 2
"""When a process was heard that is not silent, however long the tests take."""

VAST = 2**31 - 1

TIMES = (10 * MS, 40 * MS, 60 * MS, 2 * MS)


def spans(writer: Writer, step: int, *, start: int = START) -> list[Row]:
    """A rank's spans of a step."""
    return story.step_spans(writer.rank, step, launch=writer.launch, times=TIMES, start=start)


def ended(writer: Writer, *, step: int) -> pb.Batch:
    """The last batch of a process that says so."""
    event: Row = {"time": START, "kind": "end_of_stream", "name": "end", "severity": 2}
    return writer.seal(spans=spans(writer, step), events=[event])


def restarted() -> Iterator[pb.Batch]:
    """Four ranks to step 1, then two in another launch from step 1 on; the later step arrives first."""
    for rank in range(4):
        writer = Writer("restarted", rank, launch=FIRST)
        yield writer.seal(spans=[row for step in range(2) for row in spans(writer, step)])
    for rank in range(2):
        writer = Writer("restarted", rank, launch=SECOND, world_size=2)
        for step in (2, 1):
            yield writer.seal(sealed_ns=START + 9 * MS, spans=spans(writer, step, start=START + step * 900 * MS))


def lacking() -> Iterator[pb.Batch]:
    """Of seven ranks only the first has step 3, each of the others lacks it for another reason."""
    writers = {rank: Writer("lacking", rank, world_size=7) for rank in range(7)}
    yield writers[0].seal(spans=[*spans(writers[0], 3), *spans(writers[0], 4)])
    lost: Row = {
        "class": GapClass.LOST.code,
        "cause": "ring_full",
        "data_kind": "spans",
        "count": 6,
        "step_from": 3,
        "step_to": 3,
        "start": START,
    }
    yield writers[1].seal(spans=spans(writers[1], 2), gaps=[lost])
    yield ended(writers[2], step=2)
    yield writers[3].seal(spans=spans(writers[3], 2))
    heard = writers[5].seal(spans=spans(writers[5], 2))
    heard.received = FAR_AHEAD
    yield heard
    yield writers[6].seal(spans=spans(writers[6], 4))


def twins() -> Iterator[pb.Batch]:
    """Two processes that are rank 0, of which the second has a span more."""
    first, second = Writer("twins", 0, world_size=1), Writer("twins", 0, world_size=1)
    yield first.seal(spans=spans(first, 0))
    rows = [{**row, "span_id": row["span_id"] + 100, "duration": 7 * MS} for row in spans(second, 0)]
    parents = {row["span_id"] for row in spans(second, 0)}
    rows = [
        {**row, "parent_span_id": row["parent_span_id"] + 100} if row.get("parent_span_id") in parents else row
        for row in rows
    ]
    other = second.seal(spans=[*rows, {**rows[-1], "span_id": 1}])
    other.header.incarnation = b"\xee" * 16
    yield other


def far_apart() -> Iterator[pb.Batch]:
    """Clocks hours apart: those of ranks 0 and 1 were measured, on two nodes; that of rank 2 never was."""
    behind = {0: 0, 1: HOURS, 2: 3 * HOURS}
    told: list[pb.Batch] = []
    for rank, by in behind.items():
        writer = Writer("far-apart", rank, world_size=3)
        batch = writer.seal(spans=spans(writer, 0, start=START - by + rank * MS))
        batch.header.mesh_axis.extend(["dp", "tp"])
        batch.header.mesh_coordinate.extend([rank // 2, rank % 2])
        told.append(measured("far-apart", batch, at=START - by, offset=by + rank))
        yield batch
    yield from told[:2]


def measured(run: str, of: pb.Batch, *, at: int, offset: int) -> pb.Batch:
    """What the agent of a process's node says of its clock."""
    incarnation = of.header.incarnation
    reading: Row = {
        "time": at,
        "of_hi": int.from_bytes(incarnation[:8], "big"),
        "of_lo": int.from_bytes(incarnation[8:], "big"),
        "offset": offset,
        "error": 200_000,
        "samples": 8,
        "server": "gateway",
    }
    told = Writer(run, -1, world_size=of.header.world_size, role=ProcessRole.AGENT).seal(clocks=[reading])
    told.header.incarnation = bytes([of.header.rank + 1]) * 16
    return told


def held_up() -> Iterator[pb.Batch]:
    """Two ranks that meet at the end of each of two steps; in the second, rank 1 reads its input 50 ms longer."""
    for rank in range(2):
        writer = Writer("held-up", rank, world_size=2)
        rows, meetings = list[Row](), list[Row]()
        for step in range(2):
            start = START + step * 500 * MS
            slow = 50 * MS if rank and step else 0
            rows += story.step_spans(rank, step, times=(10 * MS + slow, 40 * MS, 60 * MS, 2 * MS), start=start)
            meetings.append(
                {
                    "entry": start + slow + 110 * MS,
                    "exit": start + 161 * MS,
                    "group": "0",
                    "group_ranks": "0-1",
                    "cseq": step + 1,
                    "op": "all_reduce",
                    "entry_source": "call",
                    "exit_source": "call",
                    "bytes": 4,
                    "step": step,
                }
            )
        batch = writer.seal(spans=rows, collectives=meetings)
        yield batch
        yield measured("held-up", batch, at=START, offset=0)


def late() -> Iterator[pb.Batch]:
    """A child that outlasts its parent, one that begins before it, one whose parent never came, and a cycle."""
    writer = Writer("late", 0, world_size=1)
    rows = spans(writer, 0)
    root, forward = rows[0]["span_id"], rows[2]["span_id"]
    shared = {**rows[5], "status": SpanStatus.OK.code}
    extra: Sequence[Mapping[str, Any]] = (
        {"span_id": 11, "parent_span_id": forward, "duration": 90 * MS, "path": "step/forward/outlasts"},
        {"span_id": 12, "parent_span_id": root, "start": START - MS, "path": "step/early"},
        {"span_id": 13, "parent_span_id": 999, "path": "step/orphan"},
        {"span_id": 14, "parent_span_id": 15, "path": "step/cycle"},
        {"span_id": 15, "parent_span_id": 14, "path": "step/cycle"},
    )
    yield writer.seal(spans=[*rows, *({**shared, **one, "name": one["path"].rpartition("/")[2]} for one in extra)])


def pipelined() -> Iterator[pb.Batch]:
    """Two microbatches in forward."""
    writer = Writer("pipelined", 0, world_size=1)
    rows = spans(writer, 0)
    second = {**rows[2], "span_id": 21, "microbatch": 1, "start": rows[2]["start"] + 20 * MS, "duration": 20 * MS}
    layer = {**rows[5], "span_id": 22, "parent_span_id": 21, "microbatch": 1, "start": second["start"], "duration": MS}
    first = [{**rows[place], "microbatch": 0, "duration": MS} for place in (2, 5)]
    yield writer.seal(spans=[rows[0], rows[1], *first, second, layer])


def vast() -> Iterator[pb.Batch]:
    """One rank of as many as a header can say."""
    writer = Writer("vast", 0, world_size=VAST)
    yield writer.seal(spans=spans(writer, 0))


@pytest.fixture(scope="module")
def misfits(front_process: FrontProcess) -> Iterator[Store]:
    """A database with all of these runs."""
    store = Store(front_process.url)
    migrate(store.client)
    for make in (restarted, lacking, twins, far_apart, held_up, late, pipelined, vast):
        insert(store.client, *make(), token=make.__name__)
    yield store
    store.drop()


@pytest_asyncio.fixture
async def misfit_api(misfits: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    async with over(misfits) as client:
        yield client


def tree_of(run: str, step: int) -> str:
    """The route of a step's tree."""
    return f"/api/v1/runs/{run}/steps/{step}/tree"


async def test_a_restart_with_fewer_ranks_is_measured_by_its_own_size(misfit_api: httpx.AsyncClient) -> None:
    second = await get(misfit_api, tree_of("restarted", 1))
    first = await get(misfit_api, tree_of("restarted", 1), launch=FIRST.hex())
    last = await get(misfit_api, tree_of("restarted", 2))

    assert [(tree["world_size"], len(tree["ranks"]), tree["missing_ranks"]) for tree in (second, first, last)] == [
        *((2, 2, []), (4, 4, []), (2, 2, []))
    ]


async def test_each_missing_rank_has_its_reason(misfit_api: httpx.AsyncClient) -> None:
    tree = await get(misfit_api, tree_of("lacking", 3))

    assert [(one["rank"], one["reason"]) for one in tree["missing_ranks"]] == [
        (1, "gap"),
        (2, "ended"),
        (3, "silent"),
        (4, "never_attached"),
        (5, "behind"),
        (6, "unexplained"),
    ]
    assert tree["missing_ranks"][0]["detail"] == "lost: ring_full"


async def test_a_world_size_of_any_number_is_answered_with_the_first_ranks_that_are_missing(
    misfit_api: httpx.AsyncClient,
) -> None:
    tree = await get(misfit_api, tree_of("vast", 0))

    assert [one["rank"] for one in tree["missing_ranks"]] == list(range(1, MOST_ABSENT + 1))
    assert tree["warnings"] == [f"{VAST - 1} ranks have nothing of this step: the first {MOST_ABSENT} are named"]


async def test_of_two_processes_that_are_one_rank_one_is_shown_and_the_other_named(
    misfit_api: httpx.AsyncClient,
) -> None:
    tree = await get(misfit_api, tree_of("twins", 0))
    own = await get(misfit_api, tree_of("twins", 0), rank=0)

    assert [rank["duration_ns"] for rank in tree["ranks"]] == [str(7 * MS)]
    assert "more than one process has this step as rank 0" in tree["warnings"][0]
    assert own["total"] == 13
    assert "2 processes have this step as this rank" in own["warnings"][-1]


async def test_clocks_hours_apart_are_put_on_one_and_one_that_was_never_measured_is_named(
    misfit_api: httpx.AsyncClient,
) -> None:
    tree = await get(misfit_api, tree_of("far-apart", 0))

    root = tree["items"][0]
    assert tree["clock"] == {"applied": True, "server": "gateway", "error_ns": "200100", "unmeasured_ranks": [2]}
    assert int(root["last_start_ns"]) - int(root["first_start_ns"]) == MS + 1
    assert [int(rank["start_ns"]) - START for rank in tree["ranks"]] == [0, MS + 1, 2 * MS - 3 * HOURS]
    assert root["max_ns"] == str(sum(TIMES))


async def test_one_ranks_tree_is_on_the_servers_clock_too(misfit_api: httpx.AsyncClient) -> None:
    measured = await get(misfit_api, tree_of("far-apart", 0), rank=1)
    never = await get(misfit_api, tree_of("far-apart", 0), rank=2)

    assert int(measured["items"][0]["start_ns"]) == START + MS + 1
    assert (never["clock"]["applied"], never["clock"]["unmeasured_ranks"]) == (False, [2])


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("rank", [(0, 1), (1, 1), (2, 1)]),
        ("node", [("node-0", 2), ("node-1", 1)]),
        ("mesh.dp", [(0, 2), (1, 1)]),
        ("mesh.tp", [(0, 2), (1, 1)]),
    ],
)
async def test_places_are_grouped_by_rank_node_and_mesh_axis(
    misfit_api: httpx.AsyncClient, by: str, groups: Sequence[tuple[object, int]]
) -> None:
    tree = await get(misfit_api, tree_of("far-apart", 0), by=by)

    assert [(one["group"], one["ranks"]) for one in tree["items"][0]["groups"]] == groups
    assert {node["groups_total"] for node in tree["items"]} == {len(groups)}


async def test_groups_are_made_by_a_thread_that_answers_nobody_else(
    misfit_api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def grouping(*given: Any, **named: Any) -> Groups:
        made.append(threading.get_ident())
        return grouped(*given, **named)

    monkeypatch.setattr("rankscope_query_api.routes.step_tree.grouped", grouping)

    tree = await get(misfit_api, tree_of("far-apart", 0), by="rank")

    assert len(made) == tree["total"]
    assert threading.get_ident() not in made


async def test_an_axis_that_no_rank_named_is_refused_with_those_that_there_are(misfit_api: httpx.AsyncClient) -> None:
    error = await refused(misfit_api, tree_of("far-apart", 0), status=422, by="mesh.pp")
    both = await refused(misfit_api, tree_of("far-apart", 0), status=422, by="node", rank=0)

    assert error["expected"] == ["rank", "node", "mesh.dp", "mesh.tp"]
    assert "no groups" in both["message"]


async def test_the_wait_at_a_collective_is_shown_at_the_rank_and_the_place_that_caused_it(
    misfit_api: httpx.AsyncClient,
) -> None:
    tree = await get(misfit_api, tree_of("held-up", 1), by="rank")
    without = await get(misfit_api, tree_of("late", 0))

    charged = {node["path"]: node["charged_wait_ns"] for node in tree["items"]}
    assert [rank["charged_ns"] for rank in tree["ranks"]] == ["0", str(50 * MS)]
    assert (charged["step"], charged["step/input"], charged["step/forward"]) == (str(50 * MS), str(50 * MS), "0")
    assert [(one["group"], one["charged_wait_ns"]) for one in tree["items"][0]["groups"]] == [
        *((1, str(50 * MS)), (0, "0"))
    ]
    assert tree["waits"] == {"charged_ns": str(50 * MS), "received_ns": "0", "uncertain_ns": "0"}
    assert (without["waits"], without["items"][0]["charged_wait_ns"]) == (None, None)


async def test_late_spans_orphans_and_cycles_are_reported_in_both_trees(misfit_api: httpx.AsyncClient) -> None:
    tree = await get(misfit_api, tree_of("late", 0))
    own = await get(misfit_api, tree_of("late", 0), rank=0)

    assert {node["name"]: node["late"] for node in tree["items"] if node["late"]} == {"outlasts": 1, "early": 1}
    assert (tree["late"], tree["orphans"], tree["depth"]) == (2, 1, 2)
    assert {node["name"] for node in own["items"] if node["late"]} == {"outlasts", "early"}
    assert (own["late"], own["orphans"], own["cycles_cut"], own["depth"]) == (2, 1, 1, 2)


async def test_microbatches_are_places_of_their_own_below_their_phase(misfit_api: httpx.AsyncClient) -> None:
    tree = await get(misfit_api, tree_of("pipelined", 0))
    own = await get(misfit_api, tree_of("pipelined", 0), rank=0)

    below = [(node["path"], node["microbatch"], node["count"]) for node in tree["items"] if "forward" in node["path"]]
    assert below == [
        ("step/forward", None, 2),
        ("step/forward/microbatch 0", 0, 1),
        ("step/forward/microbatch 0/layers.2", 0, 1),
        ("step/forward/microbatch 1", 1, 1),
        ("step/forward/microbatch 1/layers.2", 1, 1),
    ]
    assert [node["microbatch"] for node in own["items"]] == [None, None, 0, 0, 1, 1]
