"""What doctor says of a run: "complete" only where every process was heard to its end."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from rankscope.cli._run_health import is_whole, run_lines, state_of
from tests.cli.programs import rankscope
from tests.ground.processes import Children, wait_until
from tests.ground.stacks import Stack

SECTION: dict[str, Any] = {"section": "spans", "emitted": 5, "stored": 5, "lost": 0, "lost_by_cause": {}, "missing": 0}
SILENT = {"silent_since": "2026-01-01T00:00:00.000000000Z"}
LAST_WORD = "has not said its last word: up to its last second may be missing"


def report(processes: Sequence[dict[str, Any]], *, faults: Sequence[str] = (), **run: Any) -> dict[str, Any]:
    """A run's report; a process is known by its rank."""
    named = [{"incarnation": f"{process['rank']:032x}", **process} for process in processes]
    completeness = {
        "complete": not faults,
        "ended": all(process["ended"] for process in processes),
        "sections": [SECTION],
        "launches": [],
        "processes": [{**process, "faults": list(faults)} for process in named],
    }
    answer: dict[str, Any] = {
        "run_id": "a",
        "status": "running",
        "end": None,
        "launch_list": [{"missing_ranks": []}],
        "gaps": [],
        "processes": named,
    }
    return {"completeness": completeness, "run": state_of(answer | run, completeness)}


ENDED = {"ended": True, "status": "finished"}
RUNS = {"ended": False, "status": "running"}
FELL_SILENT = {"ended": False, "status": "interrupted", **SILENT}


def test_a_run_whose_processes_all_ended_is_complete() -> None:
    whole = report([{"rank": 0, **ENDED}, {"rank": 1, **ENDED}], status="finished")

    assert run_lines(whole)[-1] == "run a is complete: every emitted row is stored or declared lost"
    assert is_whole(whole)


def test_a_run_that_runs_is_never_called_complete_and_its_open_processes_are_named() -> None:
    running = report([{"rank": 0, **ENDED}, {"rank": 3, **RUNS}])

    *_, verdict, process = run_lines(running)
    assert verdict == "run a: so far every row that arrived is stored"
    assert process == f"  process 00000003 (rank 3) {LAST_WORD}"
    assert "complete" not in "\n".join(run_lines(running))
    assert is_whole(running)


def test_of_many_open_processes_the_first_are_named_and_the_rest_counted() -> None:
    lines = run_lines(report([{"rank": rank, **RUNS} for rank in range(64)]))

    assert sum(LAST_WORD in line for line in lines) == 8
    assert lines[-1] == "  nor have 56 more processes"


def test_a_run_that_fell_silent_is_interrupted_and_its_end_may_be_missing() -> None:
    silent = report([{"rank": 0, **ENDED}, {"rank": 1, **FELL_SILENT}], status="interrupted", **SILENT)

    said = "\n".join(run_lines(silent))
    assert silent["run"]["silent_ranks"] == [1]
    assert f"run a was interrupted: nothing was heard of rank 1 since {SILENT['silent_since']}" in said
    assert f"(rank 1) {LAST_WORD}" in said
    assert "complete" not in said
    assert not is_whole(silent)


def test_a_process_of_which_only_the_ledger_knows_that_it_is_silent_counts_too() -> None:
    silent = report([{"rank": 0, "ended": False, "status": "", **SILENT}])

    assert not is_whole(silent)


def test_a_run_that_said_it_was_interrupted_has_an_end_and_may_be_complete() -> None:
    ended = report([{"rank": 0, "ended": True, "status": "interrupted"}], status="interrupted", end="2026-01-01")

    *_, verdict, state = run_lines(ended)
    assert "is complete" in verdict
    assert state == "run a was interrupted at 2026-01-01"
    assert is_whole(ended)


@pytest.mark.parametrize("state", [ENDED, RUNS])
def test_a_rank_of_which_nothing_arrived_is_named(state: dict[str, Any]) -> None:
    lines = run_lines(report([{"rank": 0, **state}], launch_list=[{"missing_ranks": [1, 2]}]))

    assert any("nothing arrived of rank 1, 2" in line for line in lines)
    assert not any("complete" in line for line in lines)


def test_missing_rows_are_a_fault() -> None:
    faulty = report([{"rank": 0, **ENDED}], faults=["1 batches are missing: seq 3"])

    assert run_lines(faulty)[-2:] == ["rank 0: 1 batches are missing: seq 3", "run a: rows are missing"]
    assert not is_whole(faulty)


def test_what_observing_costs_is_told_as_the_run_said_it() -> None:
    costs = [
        {"metric": "rankscope.probe.cost", "step": 199, "share": 0.0123},
        {"metric": "rankscope.probe.cost.model2", "step": 99, "share": 0.0},
    ]

    assert run_lines(report([{"rank": 0, **ENDED}]) | {"cost": costs})[-2:] == [
        "observing the model costs 1.23% of step time, measured up to step 199",
        "observing model2 costs 0.00% of step time, measured up to step 99",
    ]


TRAINER = """
import sys, rankscope
run = rankscope.init(run_id=sys.argv[1])
with run.trace("\\x1b]0;owned\\x07"):
    pass
run.log_metric("rankscope.probe.cost", 0.25, step=7)  # as a watch does
run.finish()
"""


def test_a_run_can_be_read_at_once_after_it_finished(stack: Stack) -> None:
    for number in range(2):
        run = f"read-at-once-{number}"
        subprocess.run([sys.executable, "-c", TRAINER, run], check=True, env=stack.environ, capture_output=True)

        doctor = rankscope("doctor", run, home=stack.home)
        shown = rankscope("query", "span.duration >= 0ns", "--run", run, home=stack.home)

        assert doctor.status == shown.status == 0
        assert f"run {run} is complete" in doctor.stdout
        assert "observing the model costs 25.00% of step time, measured up to step 7" in doctor.stdout
        assert "\\u001b]0;owned\\u0007" in shown.stdout
        assert "\x1b" not in shown.stdout


def test_a_run_that_is_not_over_is_not_called_complete(stack: Stack, children: Children) -> None:
    program = TRAINER.replace("run.finish()", "__import__('time').sleep(600)")
    children.start([sys.executable, "-c", program, "not-over"], name="trainer", environ=stack.environ)
    wait_until(lambda: any(run["run_id"] == "not-over" for run in stack.get("/runs")["items"]), what="it is heard of")

    doctor = rankscope("doctor", "not-over", home=stack.home)

    assert doctor.status == 0
    assert "so far every row that arrived is stored" in doctor.stdout
    assert f"(rank 0) {LAST_WORD}" in doctor.stdout
    assert "complete" not in doctor.stdout
