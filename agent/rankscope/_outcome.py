"""How a process's part of a run ended: in what status, and with how many rows kept."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rankscope_proto.names import RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from rankscope._export import Exporter

Wait = Literal["spooled", "durable"]
"""What an end may wait for: that the spool has everything, or that the store has."""

FINISH_S = 1.5
"""How long an end waits for the spool: with what else the end of a process takes, below 2 s."""

DURABLE_S = 60.0
DURABLE_PAUSE_S = 0.05
"""How long an end waits for the store unless told, and how often it looks."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the rows a process emitted.

    Attributes:
        spooled: Handed on: the spool keeps them until the store has them.
        dropped: Given up, each stated as a gap.
        unspooled: Neither, when the wait was over: they end with the process.
    """

    spooled: int
    dropped: int
    unspooled: int

    def __str__(self) -> str:
        return f"{self.spooled} rows spooled, {self.dropped} dropped, {self.unspooled} not spooled"


def bound_s(wait: Wait, timeout: float | None) -> float:
    """Seconds that an end may take.

    Raises:
        ValueError: `wait` is no word for it.
    """
    if wait not in ("spooled", "durable"):
        raise ValueError(f'wait is {wait!r}: it is "spooled" or "durable"')
    if timeout is not None:
        return max(0.0, timeout)
    return DURABLE_S if wait == "durable" else FINISH_S


def await_durable(exporter: "Exporter", deadline: float, *, called_off: "Callable[[], bool]") -> bool:
    """Wait until the store has everything that an exporter took.

    Args:
        exporter: Who took it.
        deadline: Monotonic second to give up at.
        called_off: Asked now and then: whether to give up at once.

    Returns:
        Whether the store has it.
    """
    while not exporter.is_durable:
        if called_off() or time.monotonic() >= deadline:
            return False
        time.sleep(DURABLE_PAUSE_S)
    return True


def status_after(error_class: type[BaseException] | None, error: BaseException | None) -> RunStatus:
    """How a process ended that leaves with this exception; `sys.exit` is no failure where its code is 0."""
    if error_class is None:
        return RunStatus.FINISHED
    if isinstance(error, SystemExit):
        is_fine = error.code is None or (isinstance(error.code, int) and error.code == 0)
        return RunStatus.FINISHED if is_fine else RunStatus.FAILED
    return RunStatus.INTERRUPTED if issubclass(error_class, KeyboardInterrupt) else RunStatus.FAILED
