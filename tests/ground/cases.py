"""Cases with which the pool is tried."""

import os
import threading

import torch
import torch.distributed as dist


def summed(start: int) -> int:
    """The sum over all ranks of start + rank, by a real collective."""
    value = torch.tensor([start + dist.get_rank()])
    dist.all_reduce(value)
    return int(value)


def raising_on(rank: int) -> str:
    """Raises on one rank; the others wait for it in a collective that never completes."""
    if dist.get_rank() == rank:
        raise ValueError("the update of rank two is wrong")
    return "fine"


def hanging_on(rank: int) -> None:
    """Never returns on one rank."""
    if int(os.environ["RANK"]) == rank:
        threading.Event().wait()


def dying_on(rank: int) -> None:
    """Ends one rank's process."""
    if int(os.environ["RANK"]) == rank:
        os._exit(7)


def environment(name: str) -> str | None:
    """An environment variable, as the rank sees it."""
    return os.environ.get(name)
