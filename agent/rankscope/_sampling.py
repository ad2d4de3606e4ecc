"""Which spans are kept: by trace, by kind, and how many of one trace.

Promises: a trace is kept or left out as a whole, and the same way in every process, since its id alone
decides; what is left out is counted exactly.
"""

import threading
from collections import Counter
from typing import TYPE_CHECKING

from rankscope._span_ref import LOWER
from rankscope_proto.names import GapCause, SpanKind

if TYPE_CHECKING:
    from rankscope._tracing_options import TracingOptions

_FULL = 2**64


class Sampling:
    """The shares that are kept.

    Args:
        options: What the run was told.
    """

    __slots__ = ("_by_kind", "_trace_below")

    def __init__(self, options: "TracingOptions") -> None:
        self._trace_below = int(options.sample_rate * _FULL)
        self._by_kind = {SpanKind(kind).code: int(share * _FULL) for kind, share in options.sample_by_kind.items()}

    @property
    def is_choosy(self) -> bool:
        """Whether anything may be left out."""
        return self._trace_below < _FULL or any(below < _FULL for below in self._by_kind.values())

    def keeps_trace(self, trace: int) -> bool:
        """Whether the trace of this id is kept."""
        return mixed(trace ^ trace >> 64) < self._trace_below

    def keeps_span(self, kind: int, span: int) -> bool:
        """Whether a span of this kind and id is kept, its trace being so."""
        below = self._by_kind.get(kind)
        return below is None or mixed(span) < below


def mixed(number: int) -> int:
    """A number below 2**64 that looks random: ids given by programs are often small and in a row."""
    number &= LOWER
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & LOWER
    number = (number ^ number >> 27) * 0x94D049BB133111EB & LOWER
    return number ^ number >> 31


class LeftOut:
    """How many spans were left out, by cause, since somebody asked last."""

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._counts: Counter[GapCause] = Counter()
        self._lock = threading.RLock()  # a signal's handler may make a span while its thread is in here

    def note(self, cause: GapCause) -> None:
        """One more."""
        with self._lock:
            self._counts[cause] += 1

    def take_back(self, cause: GapCause) -> None:
        """One less: it is kept after all. One that was taken meanwhile is settled with the next of its cause."""
        with self._lock:
            self._counts[cause] -= 1

    def take(self) -> Counter[GapCause]:
        """The counts, once; none is below 1."""
        with self._lock:
            taken = +self._counts
            self._counts.subtract(taken)
        return taken
