"""Starts a server out of sight, either to stay (`rankscope up --detach`) or for as long as this process needs it."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

from rankscope import _discovery
from rankscope._discovery import Discovery
from rankscope.up._errors import FolderHeldError, PartFailedError
from rankscope.up._folder import DataFolder
from rankscope.up._parts import tethered

READY_ALLOWANCE_S = 180.0
"""A server is ready in seconds; on a machine whose cores are all busy it takes many times that."""

STOP_ALLOWANCE_S = 90.0
"""More than all parts' own allowances: past it, something hangs and is killed."""

INTERVAL_S = 0.05


def start_detached(
    folder: DataFolder, arguments: Sequence[str], *, environment: Mapping[str, str], wait_ready: bool
) -> int:
    """Start `rankscope up` in a session of its own and return its process id.

    Args:
        folder: the data folder; its `up.log` takes the output.
        arguments: what follows `rankscope up`.
        environment: the whole environment of the new process.
        wait_ready: return only when the discovery file names the new server.

    Raises:
        FolderHeldError: another process holds the folder.
        PartFailedError: the server ended, or was not ready in time.
    """
    _refuse_held(folder)
    # Not subprocess.Popen: that complains when it is collected before its child has ended, which is the plan here.
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "rankscope", "up", *arguments],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(folder.log("up")), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    if wait_ready:
        _wait_ready(folder, pid, has_ended=lambda: os.waitpid(pid, os.WNOHANG)[0] == pid)
    return pid


@contextlib.contextmanager
def running_server(
    folder: DataFolder, arguments: Sequence[str], *, environment: Mapping[str, str]
) -> Generator[Discovery]:
    """A server over `folder` that ends with the block, and with this process however that ends.

    Raises:
        FolderHeldError: another process holds the folder.
        PartFailedError: the server ended, or was not ready in time.
    """
    _refuse_held(folder)
    with folder.open_log("up") as log:
        process = subprocess.Popen(
            tethered(sys.executable, "-m", "rankscope", "up", *arguments),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield _wait_ready(folder, process.pid, has_ended=lambda: process.poll() is not None)
    finally:
        end(process, allowance_s=STOP_ALLOWANCE_S)


def end(process: "subprocess.Popen[bytes]", *, allowance_s: float) -> None:
    """SIGTERM, and SIGKILL when its allowance is over; returns when the process has ended."""
    process.terminate()
    try:
        process.wait(allowance_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _refuse_held(folder: DataFolder) -> None:
    folder.prepare()
    holder = folder.holder()
    if holder and holder.is_settled:  # the server that is started waits for a reader
        raise FolderHeldError(folder.path, pid=holder.pid, command=holder.command)


def _wait_ready(folder: DataFolder, pid: int, *, has_ended: Callable[[], bool]) -> Discovery:
    log = folder.log("up")
    deadline = time.monotonic() + READY_ALLOWANCE_S
    while time.monotonic() < deadline:
        found = _discovery.read(folder.path)
        if found and found.pid == pid:
            return found
        if has_ended():
            raise PartFailedError("rankscope up", f"{_last_words(log)} (log: {log})")
        time.sleep(INTERVAL_S)
    raise PartFailedError(
        "rankscope up",
        f"not ready within {READY_ALLOWANCE_S:g} s (process {pid}, log: {log})",
        hint="is the machine short of CPU or memory? The log has what the server said so far",
    )


def _last_words(log: Path) -> str:
    """What a server says as it dies: its error message, else its last line."""
    text = log.read_text("utf-8", "replace").strip()
    _, said_error, message = text.rpartition("\nerror: ") if "\nerror: " in text else text.rpartition("error: ")
    return message if said_error else text.rpartition("\n")[2].strip() or "it ended without a word"
