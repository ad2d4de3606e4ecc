"""`python -m tests.ranks.nursery ADDRESS FOLDER`: forks the ranks of trainings, with torch loaded once for all of them.

Loading torch and what DDP loads takes 2 s of CPU time a rank; a fork of a process that has it takes 10 ms. So a fault
that ends its ranks costs no launch of its own. The ranks are ended with this process, and it with its connection.
"""

import ctypes
import importlib
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from tests.ranks.faults import NODE, Ended, Order
from tests.ranks.training import train

PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
LOOK_S = 0.1
LOADED = ("torch._dynamo", "torch.profiler._cupti_monitor")
"""What torch loads at the first DDP and the first step."""


def main(address: str, folder: str) -> None:
    """Takes orders, answers with process ids, tells of each end."""
    for module in LOADED:
        importlib.import_module(module)
    caller = socket.socket(socket.AF_UNIX)
    caller.connect(address)
    connection = Connection(caller.detach())
    connection.send(os.getpid())
    with suppress(EOFError, ConnectionError):
        while True:
            if connection.poll(LOOK_S):
                order: Order = connection.recv()
                connection.send([_forked(order, rank, Path(folder)) for rank in range(len(order.environs))])
            for ended in _reaped():
                connection.send(ended)


def _forked(order: Order, rank: int, folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    _call(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    status = 1
    try:
        _become(order.environs[rank], folder / f"{order.name}-{rank}.log")
        _run(order)
        status = 0
    except BaseException:  # noqa: BLE001 - the boundary of the rank: its log has what it raised
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(status)  # as an interpreter does, with what `atexit` holds


def _run(order: Order) -> None:
    if order.program:
        sys.argv[1:] = order.program[1:]
        runpy.run_module(order.program[0], run_name="__main__", alter_sys=True)
    else:
        train(order.plan)


def _become(environ: Mapping[str, str], log: Path) -> None:
    """Takes over a rank's environment and log, and nothing else of the nursery."""
    held = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(held, 1)
    os.dup2(held, 2)
    os.environ.clear()
    os.environ.update(environ)
    if node := environ.get(NODE):
        with Path(f"/var/run/netns/{node}").open() as space:
            _call(LIBC.setns(space.fileno(), CLONE_NEWNET))


def _call(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "a system call failed")


def _reaped() -> list[Ended]:
    found: list[Ended] = []
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(Ended(child[0], os.waitstatus_to_exitcode(child[1])))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
