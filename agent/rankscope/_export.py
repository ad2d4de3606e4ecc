"""What the sealing thread asks of whoever carries batches away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from rankscope.errors import ExportError

Wait = Literal["spooled", "accepted", "durable"]
"""What a wait is for: that the spool has everything, that the ingest tier has accepted it, that the store has it."""


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """A batch whose bytes never change again.

    Attributes:
        payload: The serialised `Batch`.
        incarnation: UUIDv7 of the process start, 16 bytes.
        seq: Number of the batch in its incarnation, from 0; those that were given up are holes.
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


class Obstacle(NamedTuple):
    """What stands in the way of what was taken.

    Attributes:
        error: The same, in words.
        is_lasting: Whether waiting is in vain: a batch was refused for good, or only a person can change it.
    """

    error: ExportError
    is_lasting: bool


class Upload(Protocol):
    """What an exporter asks of whoever sends what it took, where that is this process."""

    @property
    def accepted(self) -> int:
        """Every seq below it is with the ingest tier."""
        ...

    def take_obstacle(self) -> Obstacle | None:
        """What stands in the way now; a refusal is told once."""
        ...

    def wake(self) -> None:
        """Look for new batches now."""
        ...


class Exporter(Protocol):
    """Takes sealed batches, in order, and keeps each until the store has it.

    One thread calls `send` and `sync`. What was taken outlives this process.
    """

    @property
    def fullness(self) -> float:
        """How much of the room is in use: 0.0 empty, 1.0 full."""
        ...

    @property
    def waits_for(self) -> Wait:
        """What `flush` and `finish` wait for unless told otherwise."""
        ...

    @property
    def keeps_unsent(self) -> bool:
        """Whether what cannot be sent now is kept for later on purpose: then it is no error."""
        ...

    @property
    def is_accepted(self) -> bool:
        """Whether the ingest tier has everything that was taken."""
        ...

    @property
    def is_durable(self) -> bool:
        """Whether the store has everything that was taken."""
        ...

    def take_obstacle(self) -> Obstacle | None:
        """What is known to stand in the way now; a refusal is told once."""
        ...

    @property
    def place(self) -> str:
        """Where what was taken lies, for people."""
        ...

    def send(self, batch: SealedBatch, *, is_last: bool = False, urgent: bool = False) -> bool:
        """Take a batch, or answer False and take nothing when there is no room now; never waits for a network.

        Args:
            batch: The next one.
            is_last: Nothing comes after it.
            urgent: It may use the room kept in reserve.
        """
        ...

    def sync(self) -> None:
        """Have what was taken outlive the machine too; called about once a second."""
        ...

    def leave_open(self, batch: SealedBatch | None) -> None:
        """Keep the rows of the spans that are open now, in place of those before, for if this process dies.

        Args:
            batch: The rows as they would be stated; None: no span is open.
        """
        ...

    def close(self) -> None:
        """Nothing comes any more; what was taken stays."""
        ...
