"""Where the processes of a node stand, as the agent sees them: real processes, each in a state of its own."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope.agent.diary import Diaries
from rankscope.agent.rounds import Rounds
from rankscope.agent.stacks import Stacks
from rankscope.agent.standings import Standings
from rankscope_proto.names import Phase
from tests.agent.agent.standing_rows import heads_in, rows_of_process
from tests.agent.programs import command_of, environment
from tests.ground.processes import Children, wait_until

TRAINING = """
import ctypes, sys, time
import rankscope
from pathlib import Path
run = rankscope.init("chars", run_id="r", launch_id="1" * 32, quiet=True, rank=RANK, world_size=5)
beacon = run._recording.beacon
group = beacon.group("0")
step = run.step(7)
step.__enter__()
beacon.left(beacon.entered(group, 3, "all_reduce", time.monotonic_ns(), (4, 1000)), time.monotonic_ns())
def holding_the_lock():
    ctypes.PyDLL(None).sleep(600)
def in_a_collective():
    beacon.entered(group, 4, "broadcast", time.monotonic_ns(), "8")
    time.sleep(600)
def ends():
    rankscope.finish()
with step.phase("backward"):
    beacon.beat()
    Path(sys.argv[1]).touch()
    while not Path(sys.argv[1] + ".go").exists():
        time.sleep(0.02)
    beacon.beat()
    globals()[ACT]()
"""
ACTS = ("ends", "ends", "holding_the_lock", "in_a_collective", "ends")
"""What the ranks do once all are watched; 0 is stopped then, 1 killed, and 4 ends when it is told to."""


class Node:
    """Five ranks, and an agent's rounds over them.

    Attributes:
        root: The folder of the spools.
    """

    def __init__(self, home: Path, children: Children) -> None:
        self.root = home / "spool"
        self._home = home
        for rank, act in enumerate(ACTS):
            source = TRAINING.replace("RANK", str(rank)).replace("ACT", repr(act))
            command = [*command_of(source), str(home / str(rank))]
            children.start(command, name=f"rank{rank}", environ=environment(home, RANKSCOPE_AGENT="none"))
        wait_until(lambda: all((home / f"{rank}").exists() for rank in range(len(ACTS))), what="begin")
        self._diaries = Diaries(self.root)
        standings = Standings(self._diaries, Stacks())
        self._rounds = Rounds(self.root, self._diaries, visitors=(standings,))
        self._rounds.start()
        wait_until(lambda: len(vars(standings)["_watched"]) == len(ACTS), what="be watched")
        self.heads = heads_in(self.root)
        os.kill(self.heads[0].pid, signal.SIGSTOP)
        os.kill(self.heads[1].pid, signal.SIGKILL)
        self.go(2)
        self.go(3)

    def go(self, rank: int) -> None:
        """Have a rank do what it is to do."""
        (self._home / f"{rank}.go").touch()

    def went_ns(self, rank: int) -> int:
        """When it was had to, ns since the epoch."""
        return (self._home / f"{rank}.go").stat().st_mtime_ns

    def rows(self, rank: int) -> list[dict[str, Any]]:
        """What was said of a rank, in order."""
        return rows_of_process(self.root, self.heads[rank])

    def await_state(self, rank: int, state: str) -> dict[str, Any]:
        """The first row that says that a rank stands so."""
        found: list[dict[str, Any]] = []

        def is_said() -> bool:
            found[:] = [row for row in self.rows(rank) if row["state"] == state]
            return bool(found)

        wait_until(is_said, what=f"say that rank {rank} is {state}")
        return found[0]

    def close(self) -> None:
        """End the ranks and the rounds."""
        for rank in (0, 2, 3):
            os.kill(self.heads[rank].pid, signal.SIGKILL)
        self._rounds.close()
        self._diaries.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    home = tmp_path_factory.mktemp("node")
    children = Children(home)
    try:
        made = Node(home, children)
        yield made
        made.close()
    finally:
        children.stop()


def test_a_stopped_process_is_told_with_the_step_and_the_collective_it_was_at(node: Node) -> None:
    row = node.await_state(0, "stopped")

    assert (row["step"], row["phase"], row["group"]) == (7, Phase.BACKWARD.code, "0")
    assert (row["enqueued"], row["completed"], row["op"], row["shape"]) == (3, 3, "all_reduce", "4x1000")
    assert 0 < row["since"] <= row["time"]


def test_a_killed_process_is_dead_and_not_ended(node: Node) -> None:
    row = node.await_state(1, "dead")

    assert (row["step"], row["enqueued"], row["completed"]) == (7, 3, 3)
    assert {row["state"] for row in node.rows(1)} <= {"running", "dead"}


def test_a_process_in_which_something_holds_the_interpreters_lock_is_stuck(node: Node) -> None:
    row = node.await_state(2, "stuck")

    assert (row["step"], row["enqueued"], row["completed"]) == (7, 3, 3)
    assert row["since"] >= node.went_ns(2), "it was alive until then, though its last collective was over before"


def test_a_process_in_a_collective_for_seconds_waits(node: Node) -> None:
    row = node.await_state(3, "waiting")

    assert (row["enqueued"], row["completed"], row["op"], row["shape"]) == (4, 3, "broadcast", "8")
    assert {row["state"] for row in node.rows(3)} <= {"running", "waiting"}


def test_a_process_that_ends_in_order_is_ended(node: Node) -> None:
    node.await_state(4, "running")
    node.go(4)

    node.await_state(4, "ended")
    assert "dead" not in {row["state"] for row in node.rows(4)}


@pytest.mark.parametrize(("rank", "state", "frame"), [(2, "stuck", "holding_the_lock"), (3, "waiting", "in_a_coll")])
def test_the_stack_of_what_makes_no_progress_is_told(node: Node, rank: int, state: str, frame: str) -> None:
    node.await_state(rank, state)

    wait_until(lambda: any(row["stack"] for row in node.rows(rank)), what="look at its stack")

    stacks = [json.loads(row["stack"]) for row in node.rows(rank) if row["stack"]]
    assert frame in str(stacks[0][0]["frames"])
    assert not [thread for thread in stacks[0] if thread["thread"].startswith("rankscope")]
