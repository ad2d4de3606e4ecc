"""How a process's part of a run ended: in what status, and with how many rows kept."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankscope.errors import Unavailable
from rankscope_proto.names import RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from rankscope._export import Exporter, Wait

FINISH_S = 1.5
"""How long an end waits for the spool: with what else the end of a process takes, below 2 s."""

ACCEPTED_S = 5.0
"""How long a wait for the ingest tier lasts unless told: a gateway that is back is found within 3 s."""

DURABLE_S = 60.0
"""How long a wait for the store lasts unless told."""

PAUSE_S = 0.02
"""How often a wait looks: reading how far the sender is costs microseconds."""

_WHO = {"accepted": "the ingest tier has not accepted all", "durable": "the store does not have all"}


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


def bound_s(wait: "Wait", timeout: float | None) -> float:
    """Seconds that a wait may take.

    Raises:
        ValueError: `wait` is no word for it.
    """
    bounds = {"spooled": FINISH_S, "accepted": ACCEPTED_S, "durable": DURABLE_S}
    if wait not in bounds:
        raise ValueError(f'wait is {wait!r}: it is "spooled", "accepted" or "durable"')
    return bounds[wait] if timeout is None else max(0.0, timeout)


def await_handed_on(
    exporter: "Exporter", wait: "Wait", *, deadline: float, run_id: str, called_off: "Callable[[], bool]"
) -> None:
    """Wait until the ingest tier, or the store, has everything that an exporter took.

    Args:
        exporter: Who took it.
        wait: Who is to have it.
        deadline: Monotonic second to give up at.
        run_id: Named in errors.
        called_off: Asked now and then: whether to give up at once.

    Raises:
        Unavailable: it does not have everything in time, or only a person can change that; the data stays.
        Rejected: a batch was refused for good.
    """
    while True:
        obstacle = exporter.take_obstacle()
        if obstacle is not None and obstacle.is_lasting:
            raise obstacle.error
        if exporter.is_durable or (wait == "accepted" and exporter.is_accepted):
            return
        if called_off() or time.monotonic() >= deadline:
            why = "" if obstacle is None else f" ({obstacle.error})"
            raise Unavailable(
                f"{_WHO[wait]} of run {run_id} yet{why}; the data is safe in {exporter.place}: it is sent "
                "when the ingest tier answers, or by `rankscope drain`"
            )
        time.sleep(PAUSE_S)


def status_after(error_class: type[BaseException] | None, error: BaseException | None) -> RunStatus:
    """How a process ended that leaves with this exception; `sys.exit` is no failure where its code is 0."""
    if error_class is None:
        return RunStatus.FINISHED
    if isinstance(error, SystemExit):
        is_fine = error.code is None or (isinstance(error.code, int) and error.code == 0)
        return RunStatus.FINISHED if is_fine else RunStatus.FAILED
    return RunStatus.INTERRUPTED if issubclass(error_class, KeyboardInterrupt) else RunStatus.FAILED
