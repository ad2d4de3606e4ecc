"""How soon TQL answers over one long run of 1,024 ranks, what its rows take on the disk, and what a query costs itself.

The targets are for ten million spans and as many statistics. RANKSCOPE_BENCH_ROWS says how many there are (default: two
million of each, which are filled in a minute); every figure names them.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from rankscope import tql
from rankscope_query_api.tql_sql import compile_query
from tests.bench import tql_store
from tests.bench.report import Report
from tests.bench.test_one_trace import p95, spent
from tests.ground.processes import Child, answers, free_port, python
from tests.query_api.tql.examples import EXAMPLES

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

ROWS = int(os.environ.get("RANKSCOPE_BENCH_ROWS") or 2_000_000)
TIMES = 40
STEP = ROWS // (tql_store.RANKS * tql_store.SPANS_OF_STEP) // 2
"""In the middle of the spans."""

COMPILE_MS = 2.0
SPAN_BYTES, STATISTIC_BYTES = 45, 60


class Asked(NamedTuple):
    """A question with its target.

    Attributes:
        name: What it is, for the table.
        queries: The TQL of each turn. Of a condition that it has met the store remembers where it holds: what
            people ask with another value each time is asked so here.
        items: How many items the first page has.
        target_ms: The 95th percentile that is asked for.
    """

    name: str
    queries: list[str]
    items: int
    target_ms: float


def questions() -> list[Asked]:
    """What is asked of the service."""
    steps, turns = -(-ROWS // (tql_store.RANKS * tql_store.TENSORS)), range(TIMES)
    point = f'tensor.name == "layers.3.weight" and step == {STEP} and rank == '
    p99 = 'span.name == "all_reduce" | p99(span.duration) by rank'
    spread = 'tensor.role == "grad" | across rank: spread(tensor.l2) by step, tensor.name'
    return [
        Asked("point lookup (run, rank, step, tensor)", [f"{point}{turn}" for turn in turns], 1, 30),
        Asked("attribute equality, one span of a thousand", [f'attr.site == "s{turn}"' for turn in turns], 100, 150),
        Asked(
            "attribute equality, one span of eight", [f'attr.device == "cuda:{turn % 8}"' for turn in turns], 100, 150
        ),
        Asked(
            "attribute equality, counted by rank",
            [f'attr.site == "s{turn}" | count() by rank' for turn in turns],
            100,
            150,
        ),
        Asked("p99 by rank of one op", [p99] * TIMES, 100, 200),
        Asked("across rank: spread by step, tensor", [spread] * TIMES, min(100, steps * tql_store.TENSORS), 1_500),
    ]


class Served(NamedTuple):
    """The service, and what its store took."""

    api: httpx.Client
    stored: dict[str, dict[str, list[float]]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A client of the service over the run."""
    folder, port = tmp_path_factory.mktemp("tql"), free_port()
    child = Child(python("tests.bench.tql_store", folder, str(port), str(ROWS)), name="tql_store", folder=Path(folder))
    child.await_that(lambda: answers(port), what="fill its store and listen", timeout_s=1_500)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=120) as client:
        yield Served(client, json.loads((folder / "stored.json").read_text()))
    child.stop()


@pytest.mark.parametrize("asked", questions(), ids=lambda asked: asked.name)
def test_a_question_is_answered_in_time(asked: Asked, served: Served, report: Report) -> None:
    _judge(asked, served.api, report)


def test_a_trace_is_found_by_its_id(served: Served, report: Report) -> None:
    steps = range(ROWS // (tql_store.RANKS * tql_store.SPANS_OF_STEP))
    roots = [f"step == {steps[len(steps) * turn // TIMES]} and rank == 0 and span.depth == 0" for turn in range(TIMES)]
    traces = [answer(served.api, root)["items"][0]["trace_id"] for root in roots]

    queries = [f'span.trace_id == "{trace}"' for trace in traces]
    found = _judge(Asked("trace by id", queries, 100, 30), served.api, report)

    assert found["total"] == min(tql_store.RANKS * tql_store.SPANS_OF_STEP, ROWS)


def _judge(asked: Asked, api: httpx.Client, report: Report) -> dict[str, Any]:
    bodies = [{"query": query, "run": tql_store.RUN} for query in asked.queries]
    times = [spent(lambda body=body: api.post("/tql", json=body)) for body in bodies]
    found = answer(api, asked.queries[0])

    assert len(found["items"]) == asked.items
    title = f"{asked.name}, p95 over {ROWS:,} rows"
    report.judge(title, p95(times), "ms", sense="at most", target=asked.target_ms)
    report.add("  p50", sorted(times)[TIMES // 2], "ms")
    return found


def answer(api: httpx.Client, query: str) -> dict[str, Any]:
    """The first page of a query's answer."""
    found = api.post("/tql", json={"query": query, "run": tql_store.RUN})
    assert found.status_code == 200, found.text
    return found.json()


def test_rows_take_little_room(served: Served, report: Report) -> None:
    for table, target in (("spans", SPAN_BYTES), ("tensor_stats", STATISTIC_BYTES)):
        inserted, merged = served.stored["inserted"][table], served.stored["merged"][table]
        what = "a span with nine attributes" if table == "spans" else "a level-1 statistic"
        report.judge(f"{what}, when merges rest", merged[0], "bytes", sense="at most", target=target)
        report.add("  its share of the attributes' index", merged[1], "bytes")
        report.add("  as inserted", inserted[0], "bytes")
    assert served.stored["merged"]["spans"][1] > 0


def test_a_query_is_compiled_sooner_than_asked(report: Report) -> None:
    times = {query: least_cpu_s(lambda query=query: compiled(query), times=20) * 1_000 for query in EXAMPLES}

    slowest = max(times, key=lambda query: times[query])
    report.judge(
        "parse, check and compile, the slowest example", times[slowest], "ms", sense="at most", target=COMPILE_MS
    )
    report.add("  the mean of all examples", sum(times.values()) / len(times), "ms")


def compiled(query: str) -> object:
    """The SQL of a query."""
    return compile_query(tql.check(tql.parse(query)), project="default", run="wide", limit=100, after=None)


def least_cpu_s(work: Callable[[], object], *, times: int) -> float:
    """The least CPU time of some calls, in s: the machine's other work makes it more, never less."""
    found: list[float] = []
    for _ in range(times):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)
