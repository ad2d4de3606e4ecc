"""How long it takes to charge the waits of 1,024 ranks over 100 steps, as the service answers it.

The service has its chDB in its own process, as under `rankscope up`; asked over HTTP, one request at a time, warm.
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bench.report import Report
from tests.bench.wide_ranks import COLLECTIVES, EVERY, LATE_RANK, RANKS, RUN, STEPS
from tests.ground.processes import Child, answers, free_port, python

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

TARGET_MS = 1_000
TIMES = 15


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service with the collectives of 1,024 ranks."""
    folder, port = tmp_path_factory.mktemp("ranks"), free_port()
    child = Child(python("tests.bench.wide_ranks", folder, str(port)), name="ranks", folder=Path(folder))
    child.await_that(lambda: answers(port), what="fill its store and listen", timeout_s=300)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        yield client
    child.stop()


def asked(api: httpx.Client) -> tuple[float, dict[str, Any]]:
    """The time of one request in ms, and its answer."""
    began = time.perf_counter()
    answer = api.get(f"/api/v1/runs/{RUN}/stragglers", params={"from": 0})
    took = (time.perf_counter() - began) * 1_000
    assert answer.status_code == 200, answer.text
    return took, answer.json()


def test_charging_the_waits_of_a_wide_run(api: httpx.Client, report: Report) -> None:
    first, found = asked(api)
    times = [asked(api)[0] for _ in range(TIMES)]

    assert found["collectives"] == STEPS * COLLECTIVES
    [item] = [item for item in found["items"] if item["is_straggler"]]
    assert (item["rank"], item["every"], item["cause"]) == (LATE_RANK, EVERY, "input")
    name = f"stragglers of {RANKS:,} ranks x {STEPS} steps"
    report.judge(f"{name}, median", statistics.median(times), "ms", sense="at most", target=TARGET_MS)
    report.add(f"{name}, least", min(times), "ms")
    report.add(f"{name}, first", first, "ms")
