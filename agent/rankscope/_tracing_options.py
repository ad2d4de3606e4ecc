"""What is decided once, by `init`, about what a process records: how much of it is kept, and what is masked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from rankscope.errors import ConfigError
from rankscope.privacy import Redactor

if TYPE_CHECKING:
    from rankscope._settings import Settings
    from rankscope._span_ref import RemoteParent

RedactHook = Callable[[str], str]
"""Sees a text that is masked already, and returns it with more masked."""

SPANS_PER_TRACE = 100_000
RING_ROWS = 65_536
"""Rows the ring keeps: over half a second of the fastest producer, a few tens of megabytes."""


@dataclass(frozen=True, slots=True)
class TracingOptions:
    """Choices that hold for all that a process records.

    Attributes:
        sample_rate: Share of the traces that are kept, 0 to 1.
        sample_by_kind: Kind of a span → share of such spans that are kept; a kind that is not there: all.
        max_spans_per_trace: Most spans of one trace that a process keeps.
        ring_rows: Rows that wait for sealing at most; more are dropped, counted and stated.
        redactor: Masks what must not leave the process.
        parent: The span elsewhere that the root spans of the process are children of; None: of none.
    """

    sample_rate: float = 1.0
    sample_by_kind: Mapping[str, float] = field(default_factory=lambda: MappingProxyType(dict[str, float]()))
    max_spans_per_trace: int = SPANS_PER_TRACE
    ring_rows: int = RING_ROWS
    redactor: Redactor = field(default_factory=Redactor)
    parent: "RemoteParent | None" = None

    @classmethod
    def of(cls, settings: "Settings", *, redact: RedactHook | None = None) -> "TracingOptions":
        """The choices that settings mean.

        Args:
            settings: This process's.
            redact: Sees each text behind the rest of the masking.

        Raises:
            ConfigError: a key or a pattern to mask by is none.
        """
        try:
            redactor = Redactor(
                keys=settings.redact_keys,
                patterns=settings.redact_patterns,
                hook=redact,
                preview_bytes=settings.preview_bytes,
            )
        except ValueError as error:
            raise ConfigError(f"RANKSCOPE_REDACT_KEYS or RANKSCOPE_REDACT_PATTERNS: {error}") from error
        return cls(
            settings.trace_sample_rate,
            MappingProxyType(dict(settings.trace_sample_by_kind)),
            settings.max_spans_per_trace,
            redactor=redactor,
        )
