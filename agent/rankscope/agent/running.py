"""Runs a training command as if nothing were around it, and sees to its data after it.

Promises: the command's exit status is the result; signals sent here reach it; what it left is waited for at most 25 s,
and not at all when no agent takes it.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rankscope.agent.left import Left, left_in
from rankscope.errors import ConfigError

DRAIN_S = 25.0
LOOK_S = 0.2
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)


def run_command(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command to its end.

    Args:
        command: Program and arguments.
        environ: Its environment.

    Returns:
        Its exit status; 128 and the signal's number where a signal ended it, as shells say it.

    Raises:
        ConfigError: there is no such program.
    """
    try:
        process = subprocess.Popen(command, env=dict(environ))
    except OSError as error:
        raise ConfigError(f"{command[0]} cannot be run: {error.strerror}") from error
    with _forwarding(process):
        status = process.wait()
    return 128 - status if status < 0 else status


def await_delivery(
    root: Path, *, since_ns: int, has_agent: Callable[[], bool], timeout_s: float = DRAIN_S
) -> list[Left]:
    """Wait until what was recorded here is in the store; what is not by then.

    Args:
        root: The folder of the spools.
        since_ns: Only spools made since, on the wall clock.
        has_agent: Whether somebody sends.
        timeout_s: How long at most.
    """
    deadline = time.monotonic() + timeout_s
    while (left := left_in(root, since_ns=since_ns)) and time.monotonic() < deadline and has_agent():
        time.sleep(LOOK_S)
    return left


@contextmanager
def _forwarding(process: "subprocess.Popen[bytes]") -> Generator[None]:
    """Pass on what is sent to this process. Ctrl-C on a terminal reaches the command anyway: not twice."""

    def forward(number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGINT or not sys.stdin.isatty():
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
