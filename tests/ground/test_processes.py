"""What the tests start does not outlive them."""

import os
import signal
from pathlib import Path

from tests.ground.processes import Children, alive, python, wait_until


def test_a_child_that_does_not_end_when_asked_is_ended(children: Children) -> None:
    child = children.start(python("tests.ground.stubborn"), name="stubborn")
    child.await_that(lambda: "here" in child.output(), what="start")

    child.stop(timeout_s=0.2)

    assert child.returncode == -signal.SIGKILL


def test_a_child_ends_when_the_run_that_started_it_is_killed(children: Children, tmp_path: Path) -> None:
    run = children.start(python("tests.ground.parent", tmp_path), name="run")
    run.await_that(lambda: run.output().strip().isdigit(), what="start its child")
    grandchild = int(run.output())

    os.kill(run.pid, signal.SIGKILL)

    wait_until(lambda: not alive(grandchild), what="the child's end")
