"""What the sealing thread asks of whoever carries batches away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


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


class Exporter(Protocol):
    """Takes sealed batches, in order, and keeps each until the store has it.

    One thread calls `send` and `sync`. What was taken outlives this process.
    """

    @property
    def fullness(self) -> float:
        """How much of the room is in use: 0.0 empty, 1.0 full."""
        ...

    @property
    def is_durable(self) -> bool:
        """Whether the store has everything that was taken."""
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
