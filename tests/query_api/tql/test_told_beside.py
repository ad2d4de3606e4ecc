"""What an answer says beside its rows: the gaps it lies over, keys that were never seen, and where the next page is."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rankscope import tql
from rankscope_proto.v1 import batch_pb2 as pb
from rankscope_query_api import encodings
from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from rankscope_query_api.tql_sql import Compiled
from rankscope_query_api.tql_sql.mentioned import steps_of
from rankscope_query_api.values import RunKey
from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.batches import START, Writer
from tests.query_api.tql import training

FIRST, SECOND = b"1" * 16, b"2" * 16

MEETINGS = (
    *(("near", 0, FIRST), ("near", 1, FIRST), ("far", 0, FIRST), ("far", 2, FIRST)),
    *(("moved", 0, FIRST), ("moved", 2, SECOND)),
)
"""Runs of two ranks that meet in a collective: on one node, on two, and on one node after the other."""


def _meets(run: str, rank: int, *, launch: bytes) -> pb.Batch:
    group = {"group": "0", "group_ranks": "", "op": "barrier"}
    return Writer(run, rank, launch=launch).seal(collectives=[{**group, "cseq": 1, "entry": START + rank}])


@pytest.fixture(scope="module")
def trained(front_process: FrontProcess) -> Iterator[Store]:
    """The training in a database of its own."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *training.batches(), *(_meets(run, rank, launch=launch) for run, rank, launch in MEETINGS))
    yield store
    store.drop()


@pytest_asyncio.fixture
async def service(trained: Store) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service over the training."""
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": trained.url, "RANKSCOPE_QUERY_HANDLES": "2"})
    store = ClickHouseStore(ClickHouse(settings, Metrics()))
    transport = httpx.ASGITransport(create_app(store, settings), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as opened:
        yield opened
    await store.close()


async def told(service: httpx.AsyncClient, query: str, **body: Any) -> dict[str, Any]:
    """The answer to a query."""
    answer = await service.post("/api/v1/tql", json={"query": query, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("attr.devise == 'cuda:0'", "attr.devise"),
        ('missing(attr."de vise") and exists(span.name)', 'attr."de vise"'),
        ("exists(span.name) | count() by attr.devise", "attr.devise"),
        ("exists(span.name) | select span.name, metric.rewards", "metric.rewards"),
        ("run.config.lrate > 0.1 and exists(span.name)", "run.config.lrate"),
        ("span.name == 'rollout' >> attr.devise == 3", "attr.devise"),
    ],
)
@pytest.mark.parametrize(("run", "where"), [(None, "project"), (training.RUN, "run")])
async def test_a_key_that_nothing_has_is_warned_of(
    service: httpx.AsyncClient, query: str, key: str, run: str | None, where: str
) -> None:
    answer = await told(service, query, run=run)

    assert answer["warnings"] == [f"{key} was never seen in this {where}: nothing that is stored has it"]


@pytest.mark.parametrize(
    "query",
    [
        "attr.device == 'cuda:0'",
        "attr.device == 'cuda:9'",
        "missing(attr.device) and exists(span.name)",
        "metric.reward > 5",
        "exists(span.name) | count() by attr.device",
        "run.config.model.depth == 9 and exists(span.name)",
        "exists(tensor.name)",
    ],
)
async def test_a_key_that_something_has_is_not_warned_of(service: httpx.AsyncClient, query: str) -> None:
    assert (await told(service, query))["warnings"] == []


@pytest.mark.parametrize(
    ("query", "run", "is_warned"),
    [
        ("collective.wait > 5ms", "far", True),
        ("exists(collective.op) | max(collective.skew) by rank", None, True),
        ("collective.wait > 5ms", "near", False),
        ("collective.wait > 5ms", "moved", False),
        ("collective.arrived > 5", "far", False),
    ],
)
async def test_waits_between_nodes_whose_clocks_nobody_measured_are_warned_of(
    service: httpx.AsyncClient, query: str, run: str | None, is_warned: bool
) -> None:
    answer = await told(service, query, run=run)

    clocks = "the clocks of 2 of 2 processes were not measured against one server"
    warning = f"{clocks}: what they wait for between nodes is missing"
    assert answer["warnings"] == [warning] * is_warned


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("exists(span.name)", 14),
        ("span.name == 'no such span' and step == 100", 14),
        ("span.name == 'no such span' and step in 101..102", 14),
        ("exists(span.name) | where step >= 101", 14),
        ("span.name == 'rollout' >> step in [99, 101] and exists(span.name)", 14),
        ("{span.status == 'error'}", 14),
        ("exists(span.name) and step < 100", None),
        ("exists(span.name) and step > 101", None),
        ("exists(span.name) and step == 102", None),
        ("exists(tensor.name)", None),
        ("tensor.l2 > 0 and span.duration > 1h", 14),
        ("span.duration > 1h and tensor.l2 > 0", 14),
        ("{span.name == 'a'} | where trace.span_count > 9", 14),
    ],
)
async def test_the_gaps_of_the_steps_that_are_asked_about_are_told(
    service: httpx.AsyncClient, query: str, count: int | None
) -> None:
    gaps = (await told(service, query, run=training.RUN))["gaps"]
    of_project = (await told(service, query))["gaps"]

    assert of_project == [{"run_id": training.RUN, **gap} for gap in gaps]
    assert [(gap["cause"], gap["ranks"], gap["count"]) for gap in gaps] == (
        [] if count is None else [("ring_full", [1, 3], count)]
    )


async def test_pages_say_how_many_there_are_and_where_to_go_on(service: httpx.AsyncClient) -> None:
    query = "exists(span.name) | count() by span.name, rank | where count > 2"
    whole = await told(service, query)

    first = await told(service, query, limit=20)
    second = await told(service, query, limit=20, after=first["next"])

    assert (first["total"], first["returned"], first["truncated"]) == (28, 20, True)
    assert (second["total"], second["returned"], second["truncated"], second["next"]) == (28, 8, False, None)
    assert first["items"] + second["items"] == whole["items"]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("tensor.l2 > 1", (0, 2**63 - 1)),
        ("tensor.l2 > 1 and step == 3", (3, 3)),
        ("tensor.l2 > 1 and 3 < step and step <= 9", (4, 9)),
        ("tensor.l2 > 1 and (step == 3 or step == 4)", (0, 2**63 - 1)),
        ("tensor.l2 > 1 | where step < 9 | where step in 2..20 | count() by rank", (2, 8)),
        ("tensor.l2 > 1 | count() by step | where step > 5", (0, 2**63 - 1)),
    ],
)
def test_the_steps_of_a_query_are_those_that_all_its_rows_can_have(text: str, steps: tuple[int, int]) -> None:
    assert steps_of(tql.check(tql.parse(text))) == steps


@pytest.mark.parametrize(
    "query",
    [
        "tensor.l2 > 0",
        "exists(tensor.name) | count()",
        "exists(tensor.name) | count() by rank",
        "exists(tensor.name) | across rank: missing_ranks()",
        "exists(tensor.name) | count() | select count",
    ],
)
async def test_a_run_that_is_not_there_is_said_whatever_the_answer_would_hold(
    service: httpx.AsyncClient, query: str
) -> None:
    answer = await service.post("/api/v1/tql", json={"query": query, "run": "nobodys"})

    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_run")


async def test_rows_say_that_there_is_their_run(service: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    async def launches_of(_: object, key: RunKey) -> None:
        looked_up.append(key.run)

    monkeypatch.setattr("rankscope_query_api.routes.tql.launches_of", launches_of)

    with_rows = await told(service, "exists(tensor.name) | limit 1", run=training.RUN)
    without = await told(service, "tensor.l2 < 0", run=training.RUN)

    assert (with_rows["returned"], without["returned"], looked_up) == (1, 0, [training.RUN])


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
async def test_an_answer_is_not_written_by_the_thread_that_answers_others(
    service: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    threads: list[int] = []

    def seen(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            threads.append(threading.get_ident())
            return work(*given, **named)

        return call

    monkeypatch.setattr(Compiled, "items", seen(Compiled.items))
    monkeypatch.setattr("rankscope_query_api.routes.tql.response", seen(encodings.response))

    await service.post("/api/v1/tql", json={"query": "exists(tensor.name)", "run": training.RUN, "format": form})

    assert len(threads) == 2
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("query", "most", "counted"),
    [
        ("rank == 0 and step == 100 and exists(span.name)", 1_000, 0),
        ("rank == 0 and step == 100 and exists(span.name)", 1, 1),
        ("rank == 0 and step == 100 and span.name == 'none'", 1_000, 0),
        ("exists(span.name) | limit 2", 1_000, 0),
        ("exists(span.name) | limit 2", 1, 1),
        ("exists(span.name)", 1_000, 1),
    ],
)
async def test_rows_are_counted_where_the_page_may_not_be_all_of_them(
    service: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, query: str, most: int, counted: int
) -> None:
    whole, sent = await told(service, query, run=training.RUN, limit=10_000), list[str]()
    select = ClickHouse.select

    async def noted(door: ClickHouse, statement: str, *others: Any, **more: Any) -> Any:
        sent.append(statement)
        return await select(door, statement, *others, **more)

    monkeypatch.setattr(ClickHouse, "select", noted)
    page = await told(service, query, run=training.RUN, limit=most)

    assert page["total"] == whole["total"] == len(whole["items"])
    assert sum(statement.startswith("SELECT count() AS total") for statement in sent) == counted
