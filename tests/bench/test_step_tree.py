"""How soon a step of 1,024 ranks is shown as one tree, and what is around a span of a trace of a million."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bench import wide_steps
from tests.bench.report import Report
from tests.ground.processes import Child, answers, free_port, python

TREE_MS, WINDOW_MS = 300.0, 300.0
"""The promise, with chDB, warm, on an idle machine."""

TIMES = 40


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Address and process id of the service over the steps."""
    folder, port = tmp_path_factory.mktemp("wide_steps"), free_port()
    child = Child(python("tests.bench.wide_steps", folder, str(port)), name="wide_steps", folder=folder)
    child.await_that(lambda: answers(port), what="listen", timeout_s=200)
    yield f"http://127.0.0.1:{port}/api/v1/runs/{wide_steps.RUN}", child.pid
    child.stop()


@pytest.mark.bench
@pytest.mark.timeout(400)
@pytest.mark.parametrize("by", [None, "node", "mesh.tp"])
def test_a_step_of_1_024_ranks_with_60_paths_is_one_tree(
    by: str | None, report: Report, served: tuple[str, int]
) -> None:
    query = {} if by is None else {"by": by}

    shown, spent = asked(served, "/steps/3/tree", query)

    assert (len(shown["ranks"]), shown["total"]) == (wide_steps.RANKS, wide_steps.PATHS)
    assert (shown["clock"]["unmeasured_ranks"], shown["late"]) == ([], 0)
    name = "step tree of 1,024 ranks x 60 paths" + ("" if by is None else f" by {by}")
    spent.tell(report, name, target=TREE_MS)


@pytest.mark.bench
@pytest.mark.timeout(400)
@pytest.mark.parametrize("shape", wide_steps.SHAPES)
@pytest.mark.parametrize("number", [2, 500_000, 1_000_000])
def test_a_window_of_a_trace_of_a_million_spans_is_shown_at_once(
    shape: str, number: int, report: Report, served: tuple[str, int]
) -> None:
    path, query = f"/traces/{wide_steps.trace_id(shape)}/window", {"span": f"{number:016x}"}

    shown, spent = asked(served, path, query)

    assert shown["items"][shown["at"]]["span_id"] == query["span"]
    spent.tell(report, f"window at span {number:,} of 1,000,000 ({shape})", target=WINDOW_MS)


class Spent:
    """What some answers took: by the clock, and of the service's processor time."""

    def __init__(self, times_ms: list[float], cpu_ms: float) -> None:
        self._times = sorted(times_ms[2:])
        self._cpu = cpu_ms

    def tell(self, report: Report, name: str, *, target: float) -> None:
        """Tells the report."""
        report.judge(f"{name}, p95", self._times[int(len(self._times) * 0.95)], "ms", sense="at most", target=target)
        report.add("  p50", self._times[len(self._times) // 2], "ms")
        report.add("  processor time of the service", self._cpu, "ms")


def asked(served: tuple[str, int], path: str, query: dict[str, str]) -> tuple[dict[str, Any], Spent]:
    """The answer, and what it took to be given."""
    address, pid = served
    with httpx.Client(base_url=address, timeout=60) as api:
        answer, times = api.get(path, params=query), list[float]()
        before = cpu_s(pid)
        for _ in range(TIMES):
            begin = time.perf_counter()
            answer = api.get(path, params=query)
            times.append((time.perf_counter() - begin) * 1000)
            assert answer.status_code == 200, answer.text
        return answer.json(), Spent(times, (cpu_s(pid) - before) * 1000 / TIMES)


def cpu_s(pid: int) -> float:
    """Processor time that a process has used, in s."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
