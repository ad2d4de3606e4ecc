"""Sending what a folder kept while nobody could take it: `run.replay_offline()`.

Promises: the same batches go under the same numbers, so repeating it, or doing it from two processes, stores nothing
twice; what earlier processes left in the folder goes too; nothing is removed before the store has it.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankscope.errors import Unavailable

if TYPE_CHECKING:
    from rankscope._export import Exporter
    from rankscope._settings import Settings
    from rankscope.agent.left import Left

LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of the batches of an offline folder.

    Attributes:
        sent: Batches that the store has now, and was not known to have before.
        left: Batches that are still here.
        faults: Why, one for each reason; empty: nothing is left, or nothing is known to stand in the way.
    """

    sent: int
    left: int
    faults: tuple[str, ...]


def replay(settings: "Settings", exporter: "Exporter", *, patience_s: float) -> Replayed:
    """Send all that lies in the offline folder, until the store has it or nothing moves any more.

    Args:
        settings: This process's, with the folder, and gateways for all of it.
        exporter: Where this process records: its own spool there is sent by itself while it lives.
        patience_s: Seconds without any progress after which it is given up.

    Raises:
        Unavailable: this process was forked from one that had used gRPC.
    """
    from rankscope._connection import survived_fork  # not at the top: no training loads gRPC for nothing
    from rankscope.agent.drain import drain

    if not survived_fork():
        raise Unavailable("nothing can be sent from here: this process was forked from one that had used gRPC")
    folder = settings.spool_root
    before = _batches(_left(settings))
    done = drain(folder, settings, instead=settings.endpoint, patience_s=patience_s, leaves_living=True)
    fault = _await_own(exporter, patience_s)
    left = _batches(_left(settings))
    faults = {*done.faults, *([fault] if fault else ())} if left else set[str]()
    return Replayed(max(0, before - left), left, tuple(sorted(faults)))


def _left(settings: "Settings") -> "list[Left]":
    from rankscope.agent.left import left_in

    return left_in(settings.spool_root)


def _batches(left: "list[Left]") -> int:
    return sum(max(1, one.batches) for one in left)


def _await_own(exporter: "Exporter", patience_s: float) -> str:
    """Wait for what this process sends itself, as long as nothing stands in the way; what does, or ""."""
    deadline = time.monotonic() + patience_s
    while not exporter.is_durable and time.monotonic() < deadline:
        obstacle = exporter.take_obstacle()
        if obstacle is not None:
            return str(obstacle.error)
        time.sleep(LOOK_S)
    return ""
