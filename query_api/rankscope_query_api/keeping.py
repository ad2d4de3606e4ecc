"""What rules found, as it is kept in a store: a row each, under an incarnation of its own."""

from dataclasses import dataclass
from typing import Protocol

from rankscope_query_api.values import Record, RunKey, Slice


@dataclass(frozen=True, slots=True)
class KeptFinding:
    """A finding as a row of `events`.

    Attributes:
        incarnation: 16 bytes that follow from what was found: the same finding has the same.
        launch: Launch id, 32 hex digits.
        rule: Name of the rule.
        severity: Code of a `Severity`.
        step: Step of it; None: none.
        time_ns: When it began, ns since the epoch.
        payload: The finding as JSON.
    """

    incarnation: bytes
    launch: str
    rule: str
    severity: int
    step: int | None
    time_ns: int
    payload: str


class FindingKeeper(Protocol):
    """What rules found."""

    async def kept(self, key: RunKey, *, launch: str | None, limit: int) -> Slice[Record]:
        """Findings of a run, or of one launch, the latest first; each once."""
        ...

    async def keep(self, key: RunKey, finding: KeptFinding) -> bool:
        """Keeps a finding; whether it is new.

        Raises:
            QueryError: The store does not take it, or did not answer.
        """
        ...
