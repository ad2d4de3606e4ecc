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
        query: The TQL.
        items: How many items the first page has.
        target_ms: The 95th percentile that is asked for.
    """

    name: str
    query: str
    items: int
    target_ms: float


def questions() -> list[Asked]:
    """What is asked of the service."""
    steps = -(-ROWS // (tql_store.RANKS * tql_store.TENSORS))
    point = f'tensor.name == "layers.3.weight" and rank == 77 and step == {STEP}'
    p99 = 'span.name == "all_reduce" | p99(span.duration) by rank'
    spread = 'tensor.role == "grad" | across rank: spread(tensor.l2) by step, tensor.name'
    return [
        Asked("point lookup (run, rank, step, tensor)", point, 1, 30),
        Asked("attribute equality, one span of a thousand", 'attr.site == "s77"', 100, 150),
        Asked("attribute equality, one span of eight", 'attr.device == "cuda:0"', 100, 150),
        Asked("attribute equality, counted by rank", 'attr.site == "s77" | count() by rank', 100, 150),
        Asked("p99 by rank of one op", p99, 100, 200),
        Asked("across rank: spread by step, tensor", spread, min(100, steps * tql_store.TENSORS), 1_500),
    ]


EXAMPLES = (
    "tensor.nan_count > 0",
    'layer.type == "attention" and tensor.absmax > 8',
    'tensor.role == "grad" and tensor.l2 > 100 and rank in 0..7 | top 10 by tensor.l2',
    'span.kind == "reward" and span.status == "error" | count() by rank',
    'span.name =~ "allreduce.*" and step in 100..200 | p50(span.duration), p99(span.duration) by rank',
    (
        'span.duration > 5ms and attr.device == "cuda:0" | select rank, step, span.name, span.duration'
        " | order by span.duration desc | limit 20"
    ),
    'span.kind == "rollout" >> span.status == "error"',
    'span.name == "env.step" and metric.reward < 0',
    'tensor.role == "grad" | across rank: spread(tensor.l2) by step, tensor.name | where spread > 0.01 | first',
    'span.name == "all_reduce" | across rank: skew(span.start) by step | where skew > 5ms',
    'span.name == "all_reduce" | across rank: missing_ranks() by step | where missing_ranks > 0',
    "tensor.l2 > 3 * prev(tensor.l2)",
    'gap.cause == "ring_full" | sum(gap.count) by rank',
)
"""The language's own."""


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
    one = answer(served.api, f"step == {STEP} and span.depth == 0")["items"][0]
    of_trace = f'span.trace_id == "{one["trace_id"]}"'

    found = _judge(Asked("trace by id", of_trace, 100, 30), served.api, report)

    assert found["total"] == min(tql_store.RANKS * tql_store.SPANS_OF_STEP, ROWS)


def _judge(asked: Asked, api: httpx.Client, report: Report) -> dict[str, Any]:
    body = {"query": asked.query, "run": tql_store.RUN}
    times = [spent(lambda: api.post("/tql", json=body)) for _ in range(TIMES)]
    found = answer(api, asked.query)

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
