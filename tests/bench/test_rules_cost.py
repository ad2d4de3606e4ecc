"""How soon all rules have judged a run of 64 ranks and 200 steps, and how soon a look at whether it hangs is over."""

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import httpx
import pytest

from tests.bench import rules_run
from tests.bench.report import Report
from tests.ground.processes import Child, answers, free_port, python

pytestmark = [pytest.mark.bench, pytest.mark.timeout(400)]

CHECK_S = 5.0
TIMES = 5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the run."""
    folder = tmp_path_factory.mktemp("rules_run")
    port = free_port()
    child = Child(python("tests.bench.rules_run", folder, str(port)), name="rules_run", folder=folder)
    child.await_that(lambda: answers(port), what="listen", timeout_s=200)
    yield f"http://127.0.0.1:{port}/api/v1/runs/{rules_run.RUN}"
    child.stop()


def test_all_rules_judge_a_run_of_200_steps_and_64_ranks(report: Report, served: str) -> None:
    told: dict[str, Any] = {}
    times: list[float] = []
    for _ in range(TIMES + 1):
        started = time.perf_counter()
        told = httpx.post(f"{served}/check", json={}, timeout=120).raise_for_status().json()
        times.append(time.perf_counter() - started)

    assert all(rule["is_judged"] for rule in told["rules"]), told["rules"]
    assert told["findings"] == []
    name = f"{len(told['rules'])} rules over {rules_run.STEPS} steps of {rules_run.RANKS} ranks"
    report.judge(name, median(times[1:]), "s", sense="at most", target=CHECK_S)


def test_a_look_at_whether_it_hangs_is_soon_over(report: Report, served: str) -> None:
    shown: dict[str, Any] = {}
    times: list[float] = []
    for _ in range(TIMES + 2):
        started = time.perf_counter()
        shown = httpx.get(f"{served}/hang", timeout=60).json()
        times.append(time.perf_counter() - started)

    assert (shown["verdict"], len(shown["processes"])) == (None, rules_run.RANKS)
    report.add(f"whether a run of {rules_run.RANKS} ranks hangs", median(times[2:]) * 1e3, "ms")
