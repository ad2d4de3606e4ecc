"""What was measured of processes' clocks: a row of `clocks` with whose it is, and who reads such rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rankscope_query_api.values import RunKey


@dataclass(frozen=True, slots=True)
class ClockReading:
    """How far one process's wall clock was from a server's, once.

    Attributes:
        incarnation: The process, 32 hexadecimal digits.
        agent: Who measured it, as an incarnation: processes that one agent measured share its node's clock.
        server: Whose clock it was held against.
        at_ns: When, on the process's own wall clock, ns since the epoch.
        offset_ns: Added to the process's wall clock it gives the server's.
        error_ns: Bound of the offset's error, either way.
        drift: Growth of the offset, ns a second; None: not known yet.
        rtt_ns: Least round trip of the exchanges used.
        samples: Exchanges used.
    """

    incarnation: str
    agent: str
    server: str
    at_ns: int
    offset_ns: int
    error_ns: int
    drift: int | None = None
    rtt_ns: int = 0
    samples: int = 0

    @property
    def server_ns(self) -> int:
        """The server's clock at that moment: the same for all that an agent measured at once."""
        return self.at_ns + self.offset_ns


@dataclass(frozen=True, slots=True)
class ClockHolder:
    """A process whose times are to be corrected.

    Attributes:
        incarnation: 32 hexadecimal digits.
        rank: Global rank; of a worker the one that it serves.
        is_worker: Whether it is a worker of a rank, no trainer.
        node: Host name.
        heard_ns: When it last sealed a batch, on its own wall clock.
    """

    incarnation: str
    rank: int
    is_worker: bool
    node: str
    heard_ns: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A process's way through a collective in which every rank waits for every other, on its own wall clock.

    Attributes:
        incarnation: 32 hexadecimal digits.
        entry_ns: When it came.
        exit_ns: When it left.
    """

    incarnation: str
    entry_ns: int
    exit_ns: int


class ClockReader(Protocol):
    """Clocks; `store` says what holds for every reader."""

    async def holders(self, key: RunKey, launch: str) -> Sequence[ClockHolder]:
        """The trainers of a launch and their workers, by (rank, incarnation)."""
        ...

    async def readings(
        self, key: RunKey, launch: str | None, *, between: tuple[int, int] | None = None
    ) -> Sequence[ClockReading]:
        """What was measured, by (incarnation, server, time): of a window of times on the processes' own clocks.

        Args:
            key: The run.
            launch: 32 hex digits; None: of all launches.
            between: First and last time that is to be corrected, ns since the epoch; None: all. Beyond each end the
                nearest reading is among them.
        """
        ...

    async def meetings(
        self, key: RunKey, launch: str, *, steps: tuple[int, int], incarnations: Sequence[str]
    ) -> Sequence[Sequence[Passage]]:
        """The quickest collectives of each ten seconds in which all ranks wait for all, and what is known of their end.

        Args:
            key: The run.
            launch: 32 hex digits.
            steps: The first and the last in which they were.
            incarnations: Whose passages are meant.
        """
        ...
