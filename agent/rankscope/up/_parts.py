"""The parts of the embedded server, each started, watched and stopped in the same four words.

A part runs here as a task (broker, writer, query service: chDB wants one owner process) or as a child process
(gateway: its parsing would take the interpreter from the writer).
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol, cast

from rankscope.up import _tether
from rankscope.up._folder import DataFolder
from rankscope.up._probes import until
from rankscope.up._services import Serve

Answers = Callable[[], Awaitable[bool]]
"""Whether the part answers yet."""


class Part(Protocol):
    """One part: `start` once, then the others in any order; `stop` may come at any time after."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    async def start(self) -> None:
        """Begin; returns before the part is ready."""
        ...

    async def ready(self) -> None:
        """Return when the part answers."""
        ...

    async def ended(self) -> str:
        """Return when the part has ended, with the reason in one line."""
        ...

    async def stop(self) -> None:
        """Put away what it holds and end; never raises, never takes longer than the part's allowance."""
        ...


class TaskPart:
    """A service that runs in this process.

    Args:
        name: the service's name.
        serve: the service.
        settings: its settings under their environment names.
        answers: whether it is ready.
        allowance_s: how long stopping may take before it is cancelled.
    """

    def __init__(
        self, name: str, serve: Serve, *, settings: Mapping[str, str], answers: Answers, allowance_s: float
    ) -> None:
        self.name = name
        self._serve = serve
        self._settings = settings
        self._answers = answers
        self._allowance_s = allowance_s
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin the service's task."""
        self._task = asyncio.create_task(self._serve(self._settings, self._stop), name=self.name)

    async def ready(self) -> None:
        """Return when the service answers."""
        await until(self._answers)

    async def ended(self) -> str:
        """Wait for the task's end; its exception is the reason."""
        if self._task is None:
            return "it was not started"
        await asyncio.wait([self._task])
        return _reason_of(self._task)

    async def stop(self) -> None:
        """Ask the service to stop, wait, and cancel it when its allowance is over."""
        self._stop.set()
        if self._task is None:
            return
        _, late = await asyncio.wait([self._task], timeout=self._allowance_s)
        for task in late:
            task.cancel()
            await asyncio.wait([task])


class ChildPart:
    """A command of ours in a process of its own, which ends with this process whatever happens.

    Args:
        name: the command's name.
        environment: its whole environment.
        folder: the data folder; the part's log there takes its output, begun anew.
        answers: whether it is ready.
        allowance_s: how long it may take to end after SIGTERM before it is killed.
        command: the subcommand, where it is not the name.
    """

    def __init__(
        self,
        name: str,
        *,
        environment: Mapping[str, str],
        folder: DataFolder,
        answers: Answers,
        allowance_s: float,
        command: str = "",
    ) -> None:
        self.name = name
        self._command = command or name
        self._environment = environment
        self._folder = folder
        self._log = folder.log(name)
        self._answers = answers
        self._allowance_s = allowance_s
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process, in a session of its own: a terminal's Ctrl-C is for the parent, who keeps the order."""
        with self._folder.open_log(self.name) as log:
            self._process = await asyncio.create_subprocess_exec(
                *tethered(sys.executable, "-m", "rankscope", self._command),
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Return when the process answers."""
        await until(self._answers)

    async def ended(self) -> str:
        """Wait for the process's end; the last line it wrote is the reason."""
        if self._process is None:
            return "it was not started"
        status = await self._process.wait()
        return f"{_last_line(self._log) or 'it ended without a word'} ({_status_words(status)}; log: {self._log})"

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL when its allowance is over."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._allowance_s):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process is not None and self._process.returncode is None:
                self._process.send_signal(number)


def tethered(*command: str) -> list[str]:
    """The command line that runs `command` as a child that ends with this process."""
    return [sys.executable, "-I", "-S", str(_tether.__file__), str(os.getpid()), *command]


def _reason_of(task: asyncio.Task[None]) -> str:
    if task.cancelled():
        return "it was cancelled"
    error = task.exception()
    return _words(error) if error else "it ended by itself"


def _words(error: BaseException) -> str:
    """The error in words; of a group's errors the first: the others mostly follow from it."""
    if isinstance(error, BaseExceptionGroup):
        errors = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return _words(errors[0])
    return str(error) or type(error).__name__


def _status_words(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
