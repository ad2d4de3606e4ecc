"""What a process is doing that makes no progress: the stacks of its threads, taken from outside.

With py-spy where that is installed, since it sees Python's frames, also of a process that is stopped or that lets no
Python code run; else as much as the system tells of its threads. Promises: the process is never held up nor asked;
values of variables are never read; secrets in names are masked; one process is looked at at a time, each at most
every half minute.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from rankscope.privacy import Redactor
from rankscope_proto.sections_ranks import STACK_BYTES

AGAIN_S = 30.0
TIMEOUT_S = 5.0
TRIES = 2
"""A stack that changes while it is read cannot be read: that is a process that does something."""

MOST_THREADS = 16
MOST_FRAMES = 48
"""Threads, and innermost frames of each."""

OWN_THREADS = "rankscope-"
"""How the names of the SDK's own threads begin: what they do says nothing of the training."""

Thread = Mapping[str, object]
"""`thread`: its name; `frames`: innermost first; `gil`: true where it holds the interpreter's lock; `kernel`: true
where the frames are the system's."""

Look = Callable[[int], Sequence[Thread]]
"""Process → what its threads are doing; nothing: it cannot be told."""


class Stacks:
    """Looks at processes from a thread of its own, which ends when there is nothing to look at.

    Args:
        look: Looks at one; default: as above.
        monotonic: A clock in seconds.
    """

    def __init__(self, *, look: Look | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._look = look or threads_of
        self._monotonic = monotonic
        self._masked = Redactor().text
        self._lock = threading.Lock()
        self._asked: deque[tuple[bytes, int]] = deque()
        self._asked_at: dict[bytes, float] = {}
        self._found: dict[bytes, str] = {}
        self._is_looking = self._is_closed = False

    def ask(self, incarnation: bytes, pid: int) -> None:
        """Have a process looked at, unless it was a moment ago; returns at once."""
        now = self._monotonic()
        with self._lock:
            if self._is_closed or now - self._asked_at.get(incarnation, float("-inf")) < AGAIN_S:
                return
            self._asked_at[incarnation] = now
            self._asked.append((incarnation, pid))
            if self._is_looking:
                return
            self._is_looking = True
        threading.Thread(target=self._run, name="rankscope-stacks", daemon=True).start()

    def take(self, incarnation: bytes) -> str:
        """What was found of a process since this was last asked, as JSON; empty: nothing new."""
        with self._lock:
            return self._found.pop(incarnation, "")

    def forget(self, incarnation: bytes) -> None:
        """It is gone."""
        with self._lock:
            self._asked_at.pop(incarnation, None)
            self._found.pop(incarnation, None)

    def close(self) -> None:
        """Look at no more."""
        with self._lock:
            self._is_closed = True
            self._asked.clear()

    def _run(self) -> None:
        while (asked := self._next()) is not None:
            incarnation, pid = asked
            text = written(self._look(pid), self._masked)
            with self._lock:
                if incarnation in self._asked_at:
                    self._found[incarnation] = text

    def _next(self) -> tuple[bytes, int] | None:
        with self._lock:
            if self._asked:
                return self._asked.popleft()
            self._is_looking = False
            return None


def threads_of(pid: int) -> Sequence[Thread]:
    """What the threads of a process are doing."""
    program = _program()
    return (program and _python_frames(program, pid)) or _system_frames(pid)


def written(threads: Sequence[Thread], masked: Callable[[str], str]) -> str:
    """Threads as JSON without secrets, the first ones, where all of them are too long; empty: there are none."""
    kept: list[Thread] = []
    size = 2
    for thread in threads[:MOST_THREADS]:
        frames = [masked(str(frame)) for frame in cast("Sequence[object]", thread["frames"])[:MOST_FRAMES]]
        entry = {**thread, "thread": masked(str(thread["thread"])), "frames": frames}
        while frames and size + _size(entry) > STACK_BYTES:
            frames.pop()
        if not frames:
            break
        size += _size(entry)
        kept.append(entry)
    return json.dumps(kept) if kept else ""


def _size(entry: Thread) -> int:
    return len(json.dumps(entry)) + 2


def _program() -> str | None:
    """py-spy: beside our own interpreter, as an environment has it that nobody activated, or on the path."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return shutil.which("py-spy", path=path)


def _python_frames(program: str, pid: int) -> Sequence[Thread]:
    # Non-blocking: it would stop the process while it reads, and cannot read one that is stopped already.
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    for _ in range(TRIES):
        with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError):
            done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True, stdin=subprocess.DEVNULL)
            found = _threads(cast("list[dict[str, object]]", json.loads(done.stdout)))
            if found:
                return found
    return ()


def _threads(dumped: Sequence[Mapping[str, object]]) -> list[Thread]:
    """The main thread first, then those that do something."""
    found: list[Thread] = []
    for thread in sorted(dumped, key=lambda one: (one.get("thread_name") != "MainThread", not one.get("active"))):
        name = str(thread.get("thread_name") or thread.get("os_thread_id"))
        if name.startswith(OWN_THREADS):
            continue
        frames = [_frame(frame) for frame in cast("list[dict[str, object]]", thread["frames"])]
        found.append({"thread": name, "frames": frames, **({"gil": True} if thread.get("owns_gil") else {})})
    return found


def _frame(frame: Mapping[str, object]) -> str:
    place = frame.get("short_filename") or frame.get("filename")
    return f"{frame['name']} ({place}:{frame.get('line')})"


def _system_frames(pid: int) -> Sequence[Thread]:
    """The kernel's side of each thread: where it waits, and nothing of Python."""
    found: list[Thread] = []
    with contextlib.suppress(OSError):
        for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
            name, frames = _text(task / "comm"), _waits_in(task)
            if frames and not name.startswith(OWN_THREADS):
                found.append({"thread": f"{name} {task.name}", "frames": frames, "kernel": True})
    return found


def _waits_in(task: Path) -> list[str]:
    # Only root is told the stack: "[<0>] futex_wait_queue+0x60/0x90" a line.
    frames = [line.split("] ")[-1].partition("+")[0] for line in _text(task / "stack").splitlines()]
    return frames or [place for place in (_text(task / "wchan"),) if place not in {"", "0"}]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()  # a name is cut after 15 bytes, in the middle of a letter too
    except OSError:
        return ""
