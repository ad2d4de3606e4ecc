"""The spans that are open now, as the rows they become if this process dies: interrupted, and as long as they were.

A process that is killed says nothing any more, so its sealing thread says it beforehand, again and again, in one file
beside the spool's segments; whoever sends the spool states the spans when the process is gone. Promises: what training
changes meanwhile is read and never changed; a span is in the file from about a second
after its start, later where writing is slow, until it has ended.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from rankscope._export import SealedBatch
from rankscope._seal import SEAL_BYTES, Sealer
from rankscope._span import Span
from rankscope._span_columns import span_size
from rankscope_proto.names import SPAN_FLAGS, GapCause, SpanStatus

if TYPE_CHECKING:
    from rankscope._recording import Recording

MOST_SPANS = 1_024
"""Spans that are said, those open longest: they are the parents of the others. More is a runaway recursion."""

LEAST_S = 0.25
"""Age at which what is said is looked at again: a hundred batches a second are not as many files."""

SHARE = 20
"""Times as long as it took to say it are left alone behind it: a thousand open spans take tens of milliseconds."""

REFRESH_S = 0.9
"""Age at which it is said anew though nothing was opened or ended: the spans last longer meanwhile. A little less than
the sealing thread's pause, which would double it otherwise."""

_INTERRUPTED = SPAN_FLAGS["interrupted"]
_UNSAID = f"open when their process died; of the spans open then {MOST_SPANS} are kept"


class LeftOpen:
    """What a recording would leave open.

    Args:
        recording: Where spans are opened.
        sealer: Makes a sealer like the one of the recording's batches.
        keep: Puts the rows where they outlive the process; None: no span is open.
    """

    def __init__(
        self, recording: "Recording", *, sealer: Callable[[], Sealer], keep: Callable[[SealedBatch | None], object]
    ) -> None:
        self._recording = recording
        self._sealer = sealer
        self._keep = keep
        self._least_s = LEAST_S
        self._said: frozenset[int] = frozenset()
        self._next_seq = 0
        self._at = float("-inf")

    def see_to_it(self, next_seq: int) -> None:
        """Say what is open, where that is due; called before what ended meanwhile is sealed.

        Args:
            next_seq: The number of the next batch. Spans that end from now on are in it or in one behind it.
        """
        if self.is_due(next_seq):
            began_s = monotonic()
            self._keep(self.batch(next_seq))
            self._least_s = max(LEAST_S, SHARE * (monotonic() - began_s))

    def is_due(self, next_seq: int) -> bool:
        """Whether what was said last may be wrong by now, or soon missing a batch.

        Args:
            next_seq: The number of the next batch: what is said is held against those sealed since.
        """
        age_s = monotonic() - self._at
        if age_s < self._least_s:
            return False
        is_open = _ids(self._recording)
        if is_open != self._said:
            return True
        return bool(is_open) and (next_seq != self._next_seq or age_s >= REFRESH_S)

    def batch(self, next_seq: int) -> SealedBatch | None:
        """The rows of the spans that are open now; None: none is.

        Args:
            next_seq: The number of the next batch.
        """
        self._at, self._next_seq = monotonic(), next_seq
        spans = self._recording.open_spans.copy().values()
        self._said = frozenset(span.id for span in spans)
        begun = sorted((span for span in spans if span.start_mono_ns), key=_since)
        if not begun:
            return None
        sealer = self._sealer()
        now_ns, size = self._recording.mono_ns(), 0
        for span in begun[:MOST_SPANS]:
            twin = _interrupted(span, now_ns)
            size += span_size(twin)
            sealer.add(twin if size <= SEAL_BYTES else _bare(twin))
        if len(begun) > MOST_SPANS:
            unsaid = {GapCause.BUDGET: len(begun) - MOST_SPANS}
            sealer.add_left_out(unsaid, start_ns=self._recording.clock.wall_ns(), detail=_UNSAID)
        sealed = sealer.seal()
        return None if sealed is None else replace(sealed, seq=next_seq)


def _ids(recording: "Recording") -> frozenset[int]:
    return frozenset(span.id for span in recording.open_spans.copy().values())


def _since(span: Span) -> tuple[int, int]:
    return span.start_mono_ns, span.depth


def _interrupted(span: Span, now_ns: int) -> Span:
    """A copy that has ended: the span itself goes on."""
    twin = copy.copy(span)
    twin.details = copy.copy(span.details)
    twin.end_mono_ns = max(now_ns, twin.start_mono_ns)
    twin.status = SpanStatus.INTERRUPTED.code
    twin.rare().flags |= _INTERRUPTED
    return twin


def _bare(twin: Span) -> Span:
    """Without what takes room, which it names: that the span was there is said all the same."""
    details = twin.rare()
    had = {
        "attributes": twin.attributes,
        "metrics": twin.metrics,
        "links": details.links,
        "inputs": details.inputs,
    }
    twin.attributes = twin.metrics = None
    details.links, details.inputs = (), ""
    if details.dropped is not None:
        details.dropped = details.dropped.copy()  # the span goes on with its own
    for name, value in had.items():
        if value:
            details.drop(name)
    return twin
