"""One rank of the pool: `torchrun ... -m tests.ground.rank ADDRESS FOLDER` waits for cases and runs them.

A rank ends when the pool's end of its connection is closed, even while a case hangs: the
thread that receives the cases ends the process.
"""

import faulthandler
import importlib
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from tests.ground.ranks import Case, Hello, Outcome


def main(address: str, folder: str) -> None:
    """Serves cases until the connection ends."""
    rank = int(os.environ["RANK"])
    with (Path(folder) / f"stack-{os.getpid()}.txt").open("w") as stack:
        faulthandler.register(signal.SIGUSR1, file=stack)
        caller = socket.socket(socket.AF_UNIX)
        caller.connect(address)
        connection = Connection(caller.detach())
        connection.send(Hello(rank, os.getpid()))
        cases: queue.SimpleQueue[Case] = queue.SimpleQueue()
        threading.Thread(target=_receive, args=(connection, cases), daemon=True).start()
        while True:
            connection.send(_outcome(rank, cases.get()))


def _receive(connection: Connection, cases: "queue.SimpleQueue[Case]") -> None:
    try:
        while True:
            cases.put(connection.recv())
    except (EOFError, ConnectionError):
        os._exit(0)


def _outcome(rank: int, case: Case) -> Outcome:
    try:
        module, _, function = case.target.partition(":")
        with ExitStack() as during:
            during.enter_context(_environment(case.environ))
            if case.group:
                during.enter_context(_process_group(case.number))
            return Outcome(rank, value=getattr(importlib.import_module(module), function)(**case.arguments))
    except BaseException:  # noqa: BLE001 - the boundary of a case: whatever it raises is its outcome
        return Outcome(rank, traceback=traceback.format_exc())


@contextmanager
def _environment(changes: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _process_group(number: int) -> Generator[None]:
    # A prefix of its own: a case that failed on one rank leaves keys that the next would trip over.
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = PrefixStore(f"case-{number}", TCPStore(address, port, world_size, is_master=False))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
