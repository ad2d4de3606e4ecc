"""Rows that no SDK should send, in a real store: every list still answers, and says what was wrong."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.names import SPAN_FLAGS
from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.asking import ask, get, walked
from tests.query_api.batches import MS, START, Row, Writer

RUN = "/api/v1/runs/broken"
CYCLE, DEEP, COPIES, ORPHAN, BACKWARD, ENDLESS = ((0, number) for number in range(1, 7))


def span(trace: tuple[int, int], span_id: int, parent: int, **more: object) -> Row:
    """A span with the least it needs."""
    return {
        "trace_hi": trace[0],
        "trace_lo": trace[1],
        "span_id": span_id,
        "parent_span_id": parent,
        "name": f"s{span_id}",
        "path": f"s{span_id}",
        "kind": 14,
        "status": 1,
        "capture": 1,
        "start": START + span_id * 1000,
        "duration": MS,
        **more,
    }


def step_span(rank: int, step: int, path: str, **more: object) -> Row:
    """A span of a step's trace."""
    number = (rank + 1) * 1000 + step * 10 + len(path) % 10
    flags = {"step": step, "flags": SPAN_FLAGS["in_step_trace"], "path": path, "name": path.rpartition("/")[2]}
    return span((9, step), number, 0, **{**flags, **more})


def steps() -> list[Row]:
    """Steps with clocks that ran backwards and durations that no sum can hold."""
    return [
        step_span(0, 1, "step", duration=-1),
        step_span(0, 2, "step", duration=2**63 - 1),
        step_span(0, 2, "step/backward", duration=2**63 - 1),
        step_span(0, 3, ""),
        step_span(0, 3, "step/forward/very/deep"),
    ]


def broken() -> Iterator[Sequence[Row]]:
    """Batches of rows."""
    yield [span(CYCLE, 1, 3), span(CYCLE, 2, 1), span(CYCLE, 3, 2), span(CYCLE, 4, 4)]
    yield [span(DEEP, number, number - 1) for number in range(1, 1001)]
    for _ in range(3):
        yield [span(COPIES, 1, 0), span(COPIES, 2, 1)]
    yield [span(ORPHAN, 1, 77), span(ORPHAN, 2, 1)]
    yield [span((5, number), 1, 0, start=START) for number in range(12)]
    yield steps()
    yield [span(BACKWARD, 1, 0, start=START), span(BACKWARD, 2, 1, start=START + 9 * MS, duration=-20 * MS)]
    yield [span(ENDLESS, 1, 0, start=START, duration=2**63 - 1), span(ENDLESS, 2, 1, start=START + 2, duration=-1)]


@pytest.fixture(scope="module")
def broken_store(front_process: FrontProcess) -> Iterator[Store]:
    """A database with all of it."""
    store = Store(front_process.url)
    migrate(store.client)
    writer = Writer("broken", 0, world_size=2)
    for number, rows in enumerate(broken()):
        insert(store.client, writer.seal(spans=rows), token=str(number))
    again = Writer("broken", 0, world_size=2, launch=b"L" * 8 + b"M" * 8)
    insert(store.client, again.seal(spans=[step_span(0, 4, "step")]), token="again")
    yield store
    store.drop()


@pytest_asyncio.fixture
async def broken_api(broken_store: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The service over it."""
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": broken_store.url})
    store = ClickHouseStore(ClickHouse(settings, Metrics()))
    transport = httpx.ASGITransport(create_app(store, settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client
    await store.close()


def spans_of(trace: tuple[int, int]) -> str:
    """The route of a trace's spans."""
    return f"{RUN}/traces/{trace[0]:016x}{trace[1]:016x}/spans"


async def test_a_trace_that_is_only_cycles_has_roots(broken_api: httpx.AsyncClient) -> None:
    page = await get(broken_api, spans_of(CYCLE))

    assert [(root["name"], root["cycle_cut"]) for root in page["items"]] == [("s1", True), ("s4", True)]
    assert page["warnings"] == ["2 cycles of parents were cut, each at its earliest span"]


async def test_a_chain_of_1_000_spans_is_opened_level_by_level(broken_api: httpx.AsyncClient) -> None:
    last = await get(broken_api, spans_of(DEEP), parent=f"{999:016x}")

    assert [(child["name"], child["child_count"]) for child in last["items"]] == [("s1000", 0)]


async def test_a_span_stored_three_times_is_listed_once(broken_api: httpx.AsyncClient) -> None:
    roots = await get(broken_api, spans_of(COPIES))
    trace = await get(broken_api, spans_of(COPIES).removesuffix("/spans"))

    assert (roots["total"], trace["total"], trace["spans"]) == (1, 1, 2)
    assert "4 rows repeat a span id" in trace["warnings"][0]


async def test_an_orphan_is_a_root_that_names_its_parent(broken_api: httpx.AsyncClient) -> None:
    page = await get(broken_api, spans_of(ORPHAN))

    assert [(root["orphan"], root["parent_span_id"]) for root in page["items"]] == [(True, f"{77:016x}")]


async def test_traces_that_start_together_are_each_on_one_page(broken_api: httpx.AsyncClient) -> None:
    # traceroot 1747: twelve equal times and pages of three lost eleven traces.
    traces = await walked(broken_api, f"{RUN}/traces", limit=3)

    ids = [trace["trace_id"] for trace in traces]
    assert len(set(ids)) == len(ids)
    assert sum(trace_id.startswith(f"{5:016x}") for trace_id in ids) == 12


@pytest.mark.parametrize("path", ["/traces", "/steps", "/steps/1/tree", "/steps/2/tree", "/steps/3/tree", "/findings"])
async def test_lying_clocks_break_no_list(broken_api: httpx.AsyncClient, path: str) -> None:
    # everr 330: one absurd duration made the whole page fail.
    answers = await asyncio.gather(*(broken_api.get(RUN + path) for _ in range(2)))

    assert [answer.status_code for answer in answers] == [200, 200]


async def test_a_negative_duration_stays_negative(broken_api: httpx.AsyncClient) -> None:
    tree = await get(broken_api, f"{RUN}/steps/1/tree")

    assert tree["items"][0]["min_ns"] == "-1"
    assert [(one["rank"], one["reason"]) for one in tree["missing_ranks"]] == [(1, "never_attached")]


@pytest.mark.parametrize(("trace", "lasted"), [(BACKWARD, 9 * MS), (ENDLESS, 2**63 - 1 - START)])
async def test_no_duration_hides_a_span_of_its_trace(
    broken_api: httpx.AsyncClient, trace: tuple[int, int], lasted: int
) -> None:
    roots = await get(broken_api, spans_of(trace))
    children = await get(broken_api, spans_of(trace), parent=f"{1:016x}")
    (listed,) = (
        one for one in await walked(broken_api, f"{RUN}/traces", limit=50) if one["trace_id"] in spans_of(trace)
    )

    assert [one["name"] for one in (*roots["items"], *children["items"])] == ["s1", "s2"]
    assert (listed["spans"], listed["duration_ns"]) == (2, str(lasted))


async def test_a_duration_that_no_sum_can_hold_is_exported(broken_api: httpx.AsyncClient) -> None:
    of_run = await broken_api.get(f"{RUN}/traces/export")
    of_trace = await broken_api.get(spans_of(ENDLESS).replace("/spans", "/export"))

    lines = [json.loads(line) for line in of_trace.text.splitlines()]
    assert (of_run.status_code, of_trace.status_code) == (200, 200)
    assert [line["name"] for line in lines] == ["s1", "s2"]
    assert len(of_run.text.splitlines()) > 1_000


async def test_an_end_beyond_all_times_is_missing_where_it_is_shown(broken_api: httpx.AsyncClient) -> None:
    answer = await ask(broken_api, "span.duration > 1000000h | select span.end")

    assert {item["end_ns"] for item in answer.json()["items"]} == {None}


async def test_spans_without_a_path_and_paths_without_their_parents_have_places(
    broken_api: httpx.AsyncClient,
) -> None:
    tree = await get(broken_api, f"{RUN}/steps/3/tree")

    depths = {node["path"]: node["depth"] for node in tree["items"]}
    assert depths["step/forward/very/deep"] == 3
    assert depths["step/forward"] == 1
