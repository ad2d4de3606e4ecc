"""The processes of a launch that failed, each with its last error; values and their reader."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rankscope_query_api.values import RunKey


@dataclass(frozen=True, slots=True)
class Failure:
    """A trainer that failed.

    Attributes:
        rank: Global rank.
        incarnation: 32 hex digits.
        node: Host name.
        failed_ns: When the error left its last span, else when the process ended; on its own clock.
        error_type: Class of the error; "": no span says it.
        message: What it said; "": likewise.
        step: Step of the span; None: none.
    """

    rank: int
    incarnation: str
    node: str
    failed_ns: int
    error_type: str
    message: str
    step: int | None


class FailureReader(Protocol):
    """Which processes failed."""

    async def failures(self, key: RunKey, launch: str) -> Sequence[Failure]:
        """The trainers of a launch that ended as failed, by rank."""
        ...
