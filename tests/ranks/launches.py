"""Starts trainings of four ranks over a running stack, and ends what is left of them."""

import os
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.ground.namespaces import NodeSpace
from tests.ground.processes import Child, alive, free_port, python, wait_until
from tests.ground.stacks import Stack
from tests.ranks.faults import COUNTS, NODE, RANKS, Ended, Fault, Order, Plan

LOADED_S = 120.0
"""How long loading torch may take on a busy machine."""

PATIENCE_S = 90.0
"""How long an answer may take to be there, on a machine that runs other tests too; within it the first one counts."""


class Launch:
    """A training that runs, or ran.

    Attributes:
        run: Its run id.
        pids: Its ranks' process ids, by rank.
    """

    def __init__(
        self, stack: Stack, run: str, pids: list[int], *, gate: Path | None, ended: Callable[[], dict[int, int]]
    ) -> None:
        self.run, self.pids, self._stack = run, pids, stack
        self._gate, self._ended = gate, ended

    def open(self) -> None:
        """Lets the first fault happen, once the agent has said of every rank where it stands."""
        self.await_seen()
        assert self._gate
        self._gate.touch()

    def await_seen(self) -> None:
        """Returns when the agent has said of every rank where it stands."""

        def is_seen() -> bool:
            return {process["rank"] for process in self.get("/hang")["processes"]} == set(range(RANKS))

        wait_until(lambda: self.is_known() and is_seen(), timeout_s=PATIENCE_S, every_s=0.2, what="standings")

    def is_known(self) -> bool:
        """Whether the store has heard of the run."""
        return any(item["run_id"] == self.run for item in self._stack.get("/runs")["items"])

    def verdict(self) -> Any:
        """The first verdict on why it does not go on."""
        found: list[Any] = []

        def is_judged() -> bool:
            found.append(self.get("/hang")["verdict"])
            return found[-1] is not None

        wait_until(is_judged, timeout_s=PATIENCE_S, every_s=0.5, what=f"a verdict on {self.run}")
        return found[-1]

    def get(self, path: str) -> Any:
        """The JSON answer of `GET /api/v1/runs/RUN...`."""
        return self._stack.get(f"/runs/{self.run}{path}")

    def tql(self, query: str) -> list[dict[str, Any]]:
        """The items a TQL query finds in the run."""
        return self._stack.tql(query, run=self.run)

    def statuses(self) -> dict[int, int]:
        """Exit statuses of the ranks that have ended, by rank."""
        ended = self._ended()
        return {rank: ended[pid] for rank, pid in enumerate(self.pids) if pid in ended}

    def await_end(self) -> None:
        """Returns when every rank has ended by itself.

        Raises:
            TimeoutError: One has not.
        """
        wait_until(lambda: len(self.statuses()) == len(self.pids), timeout_s=PATIENCE_S, every_s=0.2, what="the end")

    def await_rows(self) -> None:
        """Returns when all that the ranks recorded is stored; each has ended."""
        wait_until(
            lambda: self.get("/completeness")["ended"], timeout_s=PATIENCE_S, every_s=0.5, what=f"rows of {self.run}"
        )

    def end(self) -> None:
        """Kills what is left of it."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(alive(pid) for pid in self.pids), what="the end of the ranks")


class Nursery:
    """The process that forks the ranks, and the launches it made.

    Args:
        folder: Where its log and those of the ranks lie.
        stack: Where the ranks send to.
    """

    def __init__(self, folder: Path, stack: Stack) -> None:
        self._folder, self._stack = folder, stack
        self._statuses: dict[int, int] = {}
        self._launches: list[Launch] = []
        with tempfile.TemporaryDirectory(prefix="rsn-") as short, socket.socket(socket.AF_UNIX) as listener:
            address = f"{short}/nursery.sock"
            listener.bind(address)
            listener.listen()
            self._child = Child(
                python("tests.ranks.nursery", address, str(folder)),
                name="nursery",
                folder=folder,
                environ={**stack.environ, "OMP_NUM_THREADS": "1"},
            )
            self._child.await_that(lambda: bool(wait([listener], 0)), timeout_s=LOADED_S, what="load torch")
            self._connection = Connection(listener.accept()[0].detach())
        self._connection.recv()

    def train(
        self,
        name: str,
        *faults: Fault,
        steps: int,
        is_gated: bool = False,
        over: NodeSpace | None = None,
        counts: int = COUNTS,
    ) -> Launch:
        """Starts a training of four ranks.

        Args:
            name: Begins its run id.
            *faults: What goes wrong.
            steps: How many steps it has.
            is_gated: Whether the first fault waits for `Launch.open`.
            over: A node on which the upper half of the ranks runs.
            counts: Elements of the collectives of the loop itself.
        """
        run = _named(name)
        gate = self._folder / f"{run}.gate"
        plan = Plan(steps, faults, counts, str(gate) if is_gated else "")
        return self._started(Order(run, self._environs(run, over), plan), gate=gate)

    def run(self, module: str, *arguments: str) -> Launch:
        """Starts any program that trains, on four ranks.

        Args:
            module: Its module.
            *arguments: Its command line.
        """
        run = _named(module.rpartition(".")[2].replace("_", "-"))
        return self._started(Order(run, self._environs(run), Plan(0), (module, *arguments)))

    def _environs(self, run: str, over: NodeSpace | None = None) -> tuple[dict[str, str], ...]:
        """Each rank's environment."""
        common = {**self._stack.environ, **self._meeting(), "RANKSCOPE_RUN_ID": run}
        ranks = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(RANKS)]
        if over:
            for rank, environ in enumerate(ranks):
                is_there = rank >= RANKS // 2
                environ["GLOO_SOCKET_IFNAME"] = over.interfaces[is_there]
                environ["MASTER_ADDR"] = over.here
                environ[NODE] = over.name if is_there else ""
        return tuple(ranks)

    def _started(self, order: Order, *, gate: Path | None = None) -> Launch:
        self._connection.send(order)
        while isinstance(answer := self._connection.recv(), Ended):
            self._statuses[answer.pid] = answer.status
        launch = Launch(self._stack, order.name, answer, gate=gate, ended=self._ended)
        self._launches.append(launch)
        return launch

    def _meeting(self) -> dict[str, str]:
        """What all ranks of a new launch are told, so that they find one another."""
        return {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(RANKS),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "RANKSCOPE_LAUNCH_ID": uuid4().hex,
            "RANKSCOPE_QUIET": "1",
        }

    def said(self, launch: Launch) -> str:
        """What the ranks of a launch printed."""
        logs = sorted(self._folder.glob(f"{launch.run}-*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs)

    def stop(self) -> None:
        """Ends every rank, and the process itself."""
        for launch in self._launches:
            launch.end()
        self._connection.close()
        self._child.stop()

    def _ended(self) -> dict[int, int]:
        while self._connection.poll():
            answer: Ended = self._connection.recv()
            self._statuses[answer.pid] = answer.status
        return self._statuses


def _named(name: str) -> str:
    return f"{name}-{uuid4().hex[:8]}"
