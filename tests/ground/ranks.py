"""Four resident ranks: one torchrun launch that runs many small cases.

An empty launch of four ranks costs 12-14 s on two cores, most of it importing torch; a case
in the resident pool costs milliseconds. A case is a function of a module; every rank calls
it with the same arguments, in a fresh gloo process group, and its value comes back pickled.
"""

import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.ground.processes import Child, alive, python, wait_until

LAUNCH_S = 120.0
"""How long the ranks may take to import torch on a busy machine."""

GRACE_S = 10.0
"""How long the other ranks may still take once one has raised."""


@dataclass(frozen=True, slots=True)
class Case:
    """What every rank is to call.

    Attributes:
        number: Counts the launch's cases; names the process group.
        target: `module:function`.
        arguments: Keyword arguments.
        environ: Environment variables for the time of the call.
        group: Whether the default process group is up during the call.
    """

    number: int
    target: str
    arguments: Mapping[str, Any]
    environ: Mapping[str, str]
    group: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one rank's call came to: a value, or the traceback of what it raised."""

    rank: int
    value: Any = None
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """The first word of a rank."""

    rank: int
    pid: int


class RanksFailedError(AssertionError):
    """A case raised or hung on some rank; the message holds every such rank's traceback or stack."""


@dataclass(slots=True)
class _Launch:
    child: Child
    connections: list[Connection] = field(default_factory=list[Connection])
    pids: list[int] = field(default_factory=list[int])
    cases: int = 0


class Pool:
    """The pool; it launches at the first case, and again after a case that hung."""

    def __init__(self, folder: Path, *, world_size: int) -> None:
        self.world_size = world_size
        self._folder = folder
        self._launch: _Launch | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """The ranks' process ids, by rank; empty before the first case."""
        return tuple(self._launch.pids) if self._launch else ()

    def run(
        self,
        target: str | Callable[..., Any],
        *,
        timeout_s: float = 60.0,
        environ: Mapping[str, str] | None = None,
        group: bool = True,
        **arguments: Any,
    ) -> list[Any]:
        """Calls `module:function(**arguments)` on every rank.

        Args:
            target: The function, or its name; at the top level of a module the ranks can import.
            timeout_s: How long the slowest rank may take.
            environ: Environment variables for the time of the call.
            group: Whether the default process group is up during the call.
            **arguments: Keyword arguments; they must be picklable.

        Returns:
            Each rank's value, by rank.

        Raises:
            RanksFailedError: A rank raised, died, or did not answer in time; after the latter two
                the launch is ended and the next case starts a new one.
        """
        name = target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"
        launch = self._launched()
        launch.cases += 1
        case = Case(launch.cases, name, arguments, dict(environ or {}), group)
        for connection in launch.connections:
            with suppress(OSError):
                connection.send(case)
        outcomes = self._collect(launch, timeout_s)
        self._judge(name, launch, outcomes, timeout_s)
        return [outcomes[rank].value for rank in range(self.world_size)]

    def _collect(self, launch: _Launch, timeout_s: float) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}
        waiting = list(launch.connections)
        end = time.monotonic() + timeout_s
        while waiting and (left := end - time.monotonic()) > 0:
            for connection in wait(waiting, left):
                assert isinstance(connection, Connection)
                waiting.remove(connection)
                with suppress(EOFError, ConnectionError):
                    outcome: Outcome = connection.recv()
                    outcomes[outcome.rank] = outcome
            if any(outcome.traceback for outcome in outcomes.values()):
                end = min(end, time.monotonic() + GRACE_S)
        return outcomes

    def _judge(self, name: str, launch: _Launch, outcomes: Mapping[int, Outcome], timeout_s: float) -> None:
        silent = [rank for rank in range(self.world_size) if rank not in outcomes]
        failed = {rank: outcome.traceback for rank, outcome in outcomes.items() if outcome.traceback}
        if not silent and not failed:
            return
        parts = [f"rank {rank}:\n{text}" for rank, text in sorted(failed.items())]
        if silent:
            parts += [self._stack(launch, rank, timeout_s) for rank in silent]
            self.stop()
        raise RanksFailedError(f"{name}\n" + "\n".join(parts))

    def _stack(self, launch: _Launch, rank: int, timeout_s: float) -> str:
        pid = launch.pids[rank]
        if not alive(pid):
            return f"rank {rank} died (pid {pid}):\n{launch.child.output()[-2000:]}"
        file = self._folder / f"stack-{pid}.txt"
        os.kill(pid, signal.SIGUSR1)
        with suppress(TimeoutError):
            wait_until(lambda: file.stat().st_size > 0, timeout_s=2, what="the rank's stack")
        return f"rank {rank} did not answer within {timeout_s:g} s (pid {pid}):\n{file.read_text()}"

    def _launched(self) -> _Launch:
        if self._launch is None:
            self._launch = self._start()
        return self._launch

    def _start(self) -> _Launch:
        with tempfile.TemporaryDirectory(prefix="rsp-") as short:
            address = f"{short}/pool.sock"
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(address)
                listener.listen(self.world_size)
                launch = _Launch(self._torchrun(address))
                try:
                    launch.connections, launch.pids = self._greet(listener, launch.child)
                except BaseException:
                    launch.child.stop()
                    raise
        return launch

    def _torchrun(self, address: str) -> Child:
        command = python("torch.distributed.run", "--nproc-per-node", str(self.world_size))
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        command += ["-m", "tests.ground.rank", address, self._folder]
        environ = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        return Child(command, name="torchrun", folder=self._folder, environ=environ)

    def _greet(self, listener: socket.socket, child: Child) -> tuple[list[Connection], list[int]]:
        found: dict[int, tuple[Connection, int]] = {}
        while len(found) < self.world_size:
            child.await_that(lambda: bool(wait([listener], 0)), timeout_s=LAUNCH_S, what="a rank to report")
            connection = Connection(listener.accept()[0].detach())
            hello: Hello = connection.recv()
            found[hello.rank] = (connection, hello.pid)
        ordered = [found[rank] for rank in range(self.world_size)]
        return [connection for connection, _ in ordered], [pid for _, pid in ordered]

    def stop(self) -> None:
        """Ends the launch; every rank is gone when this returns."""
        launch, self._launch = self._launch, None
        if launch is None:
            return
        for connection in launch.connections:
            connection.close()
        with suppress(TimeoutError):
            wait_until(lambda: not any(alive(pid) for pid in launch.pids), timeout_s=5, what="ranks gone")
        for pid in launch.pids:
            with suppress(ProcessLookupError):
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
        launch.child.stop()
