"""Child processes of the tests: each in a session of its own, its output in a file, gone for certain afterwards.

Also when the test run itself is killed: each child is tethered to it, as the children of `rankscope up` are.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rankscope.up import _tether

ROOT = Path(__file__).resolve().parents[2]
"""The repository: children run there, so that they find the `tests` package."""

TETHER = (sys.executable, "-I", "-S", str(Path(_tether.__file__)))
"""Runs a program that ends when this process does."""


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 30.0, every_s: float = 0.02, what: str) -> None:
    """Returns once the condition holds; asks it every `every_s`.

    Raises:
        TimeoutError: It did not hold within the time; the message says what was waited for.
    """
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(every_s)


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether something listens on a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def descendants(pid: int) -> set[int]:
    """Every process below one, whatever session it moved to."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            found.add(child)
            waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    return []


class Child:
    """A running child process.

    Attributes:
        name: What messages call it.
        log: File with its stdout and stderr.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        name: str,
        folder: Path,
        environ: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*TETHER, str(os.getpid()), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cwd,
                env=dict(environ if environ is not None else os.environ),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, which is also its session's."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """What it printed so far."""
        return self.log.read_text(errors="replace")

    def await_that(
        self, condition: Callable[[], bool], *, timeout_s: float = 60.0, every_s: float = 0.02, what: str
    ) -> None:
        """Waits like `wait_until`, but fails at once, with the output, when the process has ended."""

        def holds() -> bool:
            if self.returncode is not None and not condition():
                raise RuntimeError(f"{self.name} exited with {self.returncode}:\n{self.output()[-4000:]}")
            return condition()

        try:
            wait_until(holds, timeout_s=timeout_s, every_s=every_s, what=f"{self.name}: {what}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.output()[-4000:]}") from None

    def signal(self, number: int) -> None:
        """Sends a signal to the process alone."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Its exit status, once it has ended."""
        return self._process.wait(timeout_s)

    def stop(self, timeout_s: float = 20.0) -> None:
        """Asks it to end, and ends it and all below it where it does not."""
        below = descendants(self.pid)
        if self.returncode is None:
            self.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        for pid in {self.pid} | below:
            with suppress(ProcessLookupError):
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()


class Children:
    """Starts children in one folder, and ends those that are left.

    Args:
        folder: Where their logs lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Child] = []

    def start(self, command: Sequence[str | Path], *, name: str, environ: Mapping[str, str] | None = None) -> Child:
        """Starts one."""
        child = Child(command, name=name, folder=self._folder, environ=environ)
        self._started.append(child)
        return child

    def stop(self) -> None:
        """Ends all that run."""
        for child in reversed(self._started):
            child.stop(timeout_s=5)


def python(module: str, *arguments: str | Path) -> list[str | Path]:
    """The command that runs a module in this environment."""
    return [sys.executable, "-m", module, *arguments]
