"""One process of a site: its command stays, its lives come and go."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.ground.processes import Child
from tests.system.oracles import peak_memory


class Part:
    """A process of the site, started, killed, frozen and started again.

    Attributes:
        name: `gateway`, `writer`, `agent` or a source's; messages and the log's file carry it.
        lives: How often it was started.
        peak: Its most resident memory over all lives, bytes, as far as it was looked at.
    """

    def __init__(self, name: str, command: list[str | Path], *, folder: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self.lives = self.peak = 0
        self.environ = dict(environ)
        self._command = command
        self._folder = folder
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        """Its present or last life; it has been started."""
        assert self._child is not None
        return self._child

    @property
    def pid(self) -> int:
        """The process id of its present life."""
        return self.child.pid

    @property
    def is_running(self) -> bool:
        """Whether it lives now."""
        return self._child is not None and self._child.returncode is None

    def start(self, **more: str) -> None:
        """Begins a life, with more variables for this one; does not wait."""
        self.lives += 1
        self._child = Child(self._command, name=self.name, folder=self._folder, environ={**self.environ, **more})

    def kill(self) -> None:
        """Ends its life with SIGKILL."""
        self.note_memory()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.child.wait()

    def freeze(self) -> None:
        """Stops it where it is."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a frozen one go on."""
        os.kill(self.pid, signal.SIGCONT)

    def note_memory(self) -> None:
        """Looks at its memory."""
        self.peak = max(self.peak, peak_memory(self.pid))

    def output(self) -> str:
        """What it said over all its lives."""
        return self.child.output()

    def stop(self, timeout_s: float = 20.0) -> None:
        """Ends it in order."""
        if self._child is not None and self.is_running:
            with suppress(ProcessLookupError):
                self.resume()
            self._child.stop(timeout_s)
