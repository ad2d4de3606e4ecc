"""What the sealing thread asks of whoever carries batches away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rankscope_proto.names import GapCause


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """A batch whose bytes never change again.

    Attributes:
        payload: The serialised `Batch`.
        incarnation: UUIDv7 of the process start, 16 bytes.
        seq: Number of the batch in its incarnation, from 0, without holes.
        digest: BLAKE2b-128 of the payload.
        rows: Rows in all sections.
        week: Monday of the sealing time, in days since 1970-01-01.
        counts: Rows by section.
    """

    payload: bytes
    incarnation: bytes
    seq: int
    digest: bytes
    rows: int
    week: int
    counts: Mapping[str, int]


class Refusal(NamedTuple):
    """A batch that will never be stored: which, why, and the words it was refused with."""

    batch: SealedBatch
    cause: GapCause
    detail: str


class Exporter(Protocol):
    """Carries sealed batches away, in order, until somebody else holds them.

    One thread calls it. What it has taken it keeps until the batch is accepted or refused for good.
    """

    @property
    def patience_s(self) -> float:
        """Seconds without any acceptance after which a wait at the end is given up."""
        ...

    def send(self, batch: SealedBatch) -> bool:
        """Take a batch, or answer False and take nothing when there is no room now; never blocks."""
        ...

    def flush(self, timeout_s: float) -> int:
        """Wait for acceptance of all that was taken; the number of batches still not accepted."""
        ...

    def unsent_rows(self) -> int:
        """Rows taken and neither accepted nor refused yet."""
        ...

    def take_refused(self) -> list[Refusal]:
        """Batches refused for good since the last call; their rows are to be stated as gaps."""
        ...

    def close(self, timeout_s: float) -> int:
        """Give up within `timeout_s`, free what is held; the number of batches never accepted."""
        ...
