"""How soon a trace of 100,000 spans is shown: its totals and first roots, a page of children, and its export."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.bench import one_trace
from tests.bench.report import Report
from tests.ground.processes import Child, answers, free_port, python

DETAIL_MS, CHILDREN_MS = 150.0, 50.0
"""The promise, with chDB, warm, on an idle machine."""

TIMES = 100
ROOT = f"{1:016x}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Address and process id of the service over the traces."""
    folder, port = tmp_path_factory.mktemp("one_trace"), free_port()
    child = Child(python("tests.bench.one_trace", folder, str(port)), name="one_trace", folder=folder)
    child.await_that(lambda: answers(port), what="listen")
    yield f"http://127.0.0.1:{port}/api/v1/runs/{one_trace.RUN}", child.pid
    child.stop()


@pytest.fixture
def api(served: tuple[str, int]) -> Iterator[httpx.Client]:
    """A client of the run."""
    with httpx.Client(base_url=served[0], timeout=60) as opened:
        yield opened


@pytest.mark.bench
@pytest.mark.timeout(240)
@pytest.mark.parametrize("shape", one_trace.SHAPES)
def test_a_trace_of_100_000_spans_is_shown_and_opened_at_once(shape: str, report: Report, api: httpx.Client) -> None:
    path = f"/traces/{one_trace.trace_id(shape)}"

    detail = [spent(lambda: api.get(path)) for _ in range(TIMES)]
    children = [spent(lambda: api.get(f"{path}/spans", params={"parent": ROOT})) for _ in range(TIMES)]
    shown = api.get(path).json()

    assert (shown["spans"], shown["cycles"]) == (one_trace.SPANS, int(shape == "skewed"))
    report.judge(f"{shape} trace of 100,000 spans, p95", p95(detail), "ms", sense="at most", target=DETAIL_MS)
    report.add("  p50", sorted(detail)[TIMES // 2], "ms")
    report.judge("  a page of 100 children, p95", p95(children), "ms", sense="at most", target=CHILDREN_MS)
    report.add("  p50", sorted(children)[TIMES // 2], "ms")


@pytest.mark.bench
@pytest.mark.timeout(240)
def test_an_export_takes_less_memory_than_it_has_bytes(
    report: Report, api: httpx.Client, served: tuple[str, int]
) -> None:
    (small,) = api.get("/traces", params={"limit": 1}).json()["items"]
    _, lines = exported(api, f"/traces/{small['trace_id']}/export")  # the way of an export has been gone once
    assert lines == small["spans"] < one_trace.SPANS // 1_000
    before = peak(served[1], is_new=True)
    begin = time.perf_counter()
    size, lines = exported(api, f"/traces/{one_trace.trace_id('wide')}/export")
    seconds = time.perf_counter() - begin
    grown = peak(served[1]) - before

    assert lines == one_trace.SPANS
    report.add("export of one trace", lines / seconds, "spans/s")
    report.add("  the service grew by, of the bytes it sent", grown / size, "")
    assert grown < size / 2


def exported(api: httpx.Client, path: str) -> tuple[int, int]:
    """Bytes and lines of an export."""
    size = lines = 0
    with api.stream("GET", path) as answer:
        for part in answer.iter_bytes():
            size, lines = size + len(part), lines + part.count(b"\n")
    return size, lines


def peak(pid: int, *, is_new: bool = False) -> int:
    """The most memory that a process had, in bytes; `is_new`: from now on, which is what it has now."""
    if is_new:
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def spent(ask: Callable[[], httpx.Response]) -> float:
    """How long an answer took, in ms."""
    begin = time.perf_counter()
    ask().raise_for_status()
    return (time.perf_counter() - begin) * 1000


def p95(times: list[float]) -> float:
    """The 95th percentile, without the first two, which warm up."""
    return sorted(times[2:])[int(len(times[2:]) * 0.95)]
