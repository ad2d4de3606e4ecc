"""What a sender needs of others: the spool, and who takes what will never be stored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from rankscope._connection import Connection
from rankscope.agent.complaints import Complaints
from rankscope.spool import Frame
from rankscope_proto.names import GapCause


class Frames(Protocol):
    """The spool as its sender needs it."""

    @property
    def end_seq(self) -> int:
        """One above the last number there is."""
        ...

    @property
    def backlog_bytes(self) -> int:
        """Bytes of segments that hold something not durable."""
        ...

    def next(self, seq: int) -> Frame | None:
        """The frame with that seq, or the next higher one that is there; None: nothing yet."""
        ...

    def free_below(self, seq: int) -> object:
        """Delete what lies wholly below; raises OSError where the disk refuses."""
        ...

    def note_standing(self, accepted: int, durable: int) -> object:
        """Write down how far the delivery is; raises OSError where the disk refuses."""
        ...


class Losses(Protocol):
    """Takes what will never be stored; both calls are safe to repeat and raise OSError or SpoolError."""

    def refuse(self, frame: Frame, cause: GapCause, *, detail: str) -> None:
        """Set a batch aside and state its rows as lost."""
        ...

    def account_for_holes(self, *, before: int) -> None:
        """State what was appended below a number and cannot be read any more."""
        ...


class Marks(Protocol):
    """Remembers over the death of a sender up to where it may have sent."""

    def reserve(self, seq: int) -> None:
        """Before `seq` is sent: from now on it may have been."""
        ...

    def is_copied(self) -> bool:
        """Whether somebody may send the same batches from a copy of the spool."""
        ...


class Who(NamedTuple):
    """Whose batches these are."""

    project: str
    run_id: str
    incarnation: bytes


def _none() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Way:
    """How a sender reaches a gateway.

    Attributes:
        connect: The connection; asked at each attempt. Raises Unavailable where no gateway is known.
        keys: API keys to try, in order; asked at each attempt; none: the connection's own.
        complaints: Says what goes wrong.
    """

    connect: Callable[[], Connection]
    keys: Callable[[], Sequence[str]] = _none
    complaints: Complaints = field(default_factory=Complaints)
