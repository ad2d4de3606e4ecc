"""End to end: eight simulated ranks beside the stack, counted as rows that a query sees."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.bench.load import KINDS, Kind
from tests.bench.report import Report
from tests.bench.usage import cpu_s, label, threads_cpu_s
from tests.ground.processes import ROOT, Child, python
from tests.ground.stacks import Stack

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

WINDOW_S = 30.0
DIRECT_S = 10.0
TARGETS = {"tensor_stats": 220_000, "spans": 150_000}
WORDS = {"tensor_stats": "level-1 statistics", "spans": "spans with two attributes"}
COUNT = {"tensor_stats": "tensor.nonfinite_count >= 0 | count()", "spans": "span.duration >= 0ns | count()"}


class Direct(NamedTuple):
    """What the store alone takes: rows per second, and CPU µs a row."""

    rate: float
    cpu_us: float


@pytest.fixture
def fresh_stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack with an empty store."""
    home = tmp_path / "home"
    home.mkdir()
    running = Stack(home)
    yield running
    running.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_visible_to_a_query(
    kind: Kind, fresh_stack: Stack, report: Report, request: pytest.FixtureRequest
) -> None:
    direct = inserted_directly(fresh_stack.home, kind)
    run = f"bench-{kind}"
    generator = Child(
        python("tests.bench.generator", fresh_stack.gateway, run, kind), name="generator", folder=fresh_stack.home
    )
    request.addfinalizer(generator.stop)
    generator.await_that(lambda: visible(fresh_stack, run, kind) > 0, what="first rows visible")

    pids = {label(pid): pid for pid in fresh_stack.processes()} | {"generator": generator.pid}
    writer = pids["writer and query service"]
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    threads_before = threads_cpu_s(writer)
    first, started = visible(fresh_stack, run, kind), time.monotonic()
    generator.await_that(lambda: time.monotonic() - started >= WINDOW_S, what="the window's end")
    last, elapsed = visible(fresh_stack, run, kind), time.monotonic() - started
    spent = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
    threads = {name: seconds - threads_before.get(name, 0) for name, seconds in threads_cpu_s(writer).items()}

    rate = (last - first) / elapsed
    report.judge(f"{WORDS[kind]}, end to end", rate, "rows/s", sense="at least", target=TARGETS[kind])
    report.add(f"{WORDS[kind]}, straight into landing", direct.rate, "rows/s")
    report.add(f"{WORDS[kind]}, end to end over straight", rate / direct.rate, "")
    report.add("  CPU of the insert, straight", direct.cpu_us, "µs/row")
    for name, seconds in sorted(spent.items()):
        report.add(f"  CPU of {name}", seconds / (last - first) * 1e6, "µs/row")
    for name, seconds in sorted(threads.items(), key=lambda one: -one[1])[:4]:
        report.add(f"    the writer's threads called {name}", seconds / (last - first) * 1e6, "µs/row")


def inserted_directly(folder: Path, kind: Kind) -> Direct:
    """The same bytes straight into `landing`."""
    place = folder / "direct"
    place.mkdir()
    command = [sys.executable, "-m", "tests.bench.direct", str(place), kind, str(DIRECT_S)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    result = json.loads(done.stdout)
    return Direct(result["rows"] / result["seconds"], result["cpu_s"] / result["rows"] * 1e6)


def visible(stack: Stack, run: str, kind: Kind) -> int:
    """Rows of the run that a query counts now."""
    try:
        answer = stack.post("/tql", {"query": COUNT[kind], "run": run})
    except httpx.HTTPStatusError as error:
        if error.response.status_code == 404:  # nothing of the run is there yet
            return 0
        raise
    return sum(int(item["count"]) for item in answer["items"])
