"""How long a page of the list of traces takes where there are a million of them, with its exact total.

The service has its chDB in its own process, as under `rankscope up`; asked over HTTP, one request at a time, warm.
"""

import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bench.many_traces import RUN, TRACES
from tests.bench.report import Report
from tests.ground.processes import Child, answers, free_port, python

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

TARGET_MS = 100
PAGE = 50
OF_RUN, OF_PROJECT = f"/api/v1/runs/{RUN}/traces", "/api/v1/traces"

FILTERS: Mapping[str, Mapping[str, Any]] = {
    "kind": {"kind": "tool"},
    "status error": {"status": "error"},
    "status ok": {"status": "ok"},
    "status running": {"status": "running"},
    "rank": {"rank": 3},
    "name": {"name": "rollout.step5"},
    "attribute": {"attribute": "model=model-3"},
    "error type": {"error_type": "TimeoutError"},
    "duration": {"min_duration_ms": 1_350},
    "steps": {"min_step": 1_000, "max_step": 1_999},
    "search, one word": {"q": "rollout-77777"},
    "search, two words": {"q": "timeout thread-17"},
}
"""Each as a part of what `q` and the filters can be: of a few traces, or of nearly all."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service with a million traces."""
    folder, port = tmp_path_factory.mktemp("traces"), free_port()
    child = Child(python("tests.bench.many_traces", folder, str(port)), name="traces", folder=Path(folder))
    child.await_that(lambda: answers(port), what="fill its store and listen", timeout_s=300)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        yield client
    child.stop()


def asked(api: httpx.Client, path: str, query: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    """The time of one request in ms, and its answer."""
    began = time.perf_counter()
    answer = api.get(path, params={"limit": PAGE, **query})
    took = (time.perf_counter() - began) * 1_000
    assert answer.status_code == 200, answer.text
    return took, answer.json()


def percentile_95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


@pytest.mark.parametrize("path", [OF_RUN, OF_PROJECT], ids=["run", "project"])
def test_a_page_of_all_traces(api: httpx.Client, report: Report, path: str) -> None:
    first, page = asked(api, path, {})
    assert page["total"] == TRACES
    times: list[float] = []
    for _ in range(50):
        took, page = asked(api, path, {"after": page["next"]} if len(times) % 2 else {})
        times.append(took)
        assert page["total"] == TRACES

    where = "a run" if path == OF_RUN else "a project"
    report.judge(
        f"list of {where} with {TRACES:,} traces, p95", percentile_95(times), "ms", sense="at most", target=TARGET_MS
    )
    report.add(f"list of {where}, p50", statistics.median(times), "ms")
    report.add(f"list of {where}, its total not counted yet", first, "ms")


@pytest.mark.parametrize("name", FILTERS)
def test_a_page_of_filtered_traces(api: httpx.Client, report: Report, name: str) -> None:
    first, page = asked(api, OF_RUN, FILTERS[name])
    times = [asked(api, OF_RUN, FILTERS[name])[0] for _ in range(10)]

    report.add(f"list by {name} ({page['total']:,} traces), p95", percentile_95(times), "ms")
    report.add(f"list by {name}, its total not counted yet", first, "ms")
