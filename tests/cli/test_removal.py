"""`rankscope rm` as a user has it: over a running server, and over a folder that nobody serves."""

import subprocess
import sys
from pathlib import Path

from tests.cli.programs import rankscope
from tests.ground.processes import Children, wait_until
from tests.ground.stacks import Stack

TRAINER = """
import sys, rankscope
run = rankscope.init(run_id=sys.argv[1])
with run.trace("work"):
    pass
"""
ENDS = "run.finish(wait='durable', timeout=60)\n"
STAYS = "__import__('time').sleep(600)\n"


def record(stack: Stack, run: str) -> None:
    """A run that has ended and whose rows are in the store."""
    environ = {**stack.environ, "RANKSCOPE_AGENT": "thread"}
    subprocess.run([sys.executable, "-c", TRAINER + ENDS, run], check=True, env=environ, capture_output=True)


def runs_of(stack: Stack) -> set[str]:
    return {run["run_id"] for run in stack.get("/runs")["items"]}


def test_a_deleted_run_is_gone_and_the_others_stay(stack: Stack) -> None:
    for run in ("rm-this", "rm-not-this"):
        record(stack, run)

    removed = rankscope("rm", "rm-this", "--yes", "--json", home=stack.home)
    again = rankscope("rm", "rm-this", "--yes", home=stack.home)

    assert removed.status == 0
    assert removed.json["deleted"]["spans"] == 1
    assert (again.status, again.stdout) == (3, "")
    assert "rm-this" not in runs_of(stack)
    assert "rm-not-this" in runs_of(stack)


def test_without_anybody_to_ask_it_deletes_nothing(stack: Stack) -> None:
    record(stack, "rm-unasked")

    answer = rankscope("rm", "rm-unasked", home=stack.home)

    assert answer.status == 2
    assert "--yes" in answer.stderr
    assert "rm-unasked" in runs_of(stack)


def test_a_run_that_runs_is_deleted_by_force_only(stack: Stack, children: Children) -> None:
    environ = {**stack.environ, "RANKSCOPE_AGENT": "thread"}
    children.start([sys.executable, "-c", TRAINER + STAYS, "rm-running"], name="trainer", environ=environ)
    wait_until(lambda: "rm-running" in runs_of(stack), what="it is heard of")

    refused = rankscope("rm", "rm-running", "--yes", "--json", home=stack.home)
    forced = rankscope("rm", "rm-running", "--yes", "--force", home=stack.home)

    assert refused.status == 1
    assert refused.error["code"] == "run_is_running"
    assert "--force" in refused.error["hint"]
    assert forced.status == 0
    assert "is deleted" in forced.stdout


def test_a_folder_that_nobody_serves_is_deleted_from_too(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    stack = Stack(tmp_path / "home", settings={"RANKSCOPE_UP_QUERY_PORT": "0", "RANKSCOPE_UP_GATEWAY_PORT": "0"})
    try:
        for run in ("one", "two"):
            record(stack, run)
    finally:
        stack.stop()

    removed = rankscope("rm", "one", "--yes", home=stack.home)

    assert removed.status == 0
    assert [run["run_id"] for run in rankscope("runs", "--json", home=stack.home).json["items"]] == ["two"]
