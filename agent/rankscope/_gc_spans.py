"""Python's garbage collections as spans: a rank that collects arrives late, and the others wait for it.

Only those of at least a millisecond, inside what is open where they begin: a step, a phase, a span. Measured: 1.6 µs
a collection; collections of the youngest objects, which are most of them, take less than a millisecond.
"""

import gc
from typing import TYPE_CHECKING

from rankscope._labels import text_of
from rankscope._span import Span

if TYPE_CHECKING:
    from rankscope._recording import Recording
    from rankscope._span_ref import SpanRef

LEAST_NS = 1_000_000
NAME = "gc"


class CollectionSpans:
    """Spans named `gc`, until the run ends or `end` is called.

    Args:
        recording: Where they go.
    """

    def __init__(self, recording: "Recording") -> None:
        self._recording = recording
        self._start_ns = 0

    def begin(self) -> None:
        """Look at every collection from now on, in whichever thread it runs: all threads stand still meanwhile."""
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        """Look at none any more."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        now_ns = self._recording.mono_ns()
        if phase == "start":
            self._start_ns = now_ns
            return
        start_ns, self._start_ns = self._start_ns, 0
        if not start_ns or now_ns - start_ns < LEAST_NS or not self._recording.armed:
            return
        try:
            self._record(start_ns, now_ns, info=info)
        except Exception as error:  # noqa: BLE001  # would be printed in the middle of training
            self._recording.note_fault(f"{type(error).__qualname__} in a span of a collection: {text_of(error)}")

    def _record(self, start_ns: int, end_ns: int, *, info: dict[str, int]) -> None:
        parent = self._parent()
        if parent is None:
            return
        span = Span(self._recording, NAME, "system", parent)
        span.attributes = {"generation": info["generation"], "collected": info["collected"]}
        span.finished(start_ns, end_ns)

    def _parent(self) -> "SpanRef | None":
        """The span that is open; of another thread the step: it held training up as well."""
        recording = self._recording
        step = recording.current_step()
        span = recording.current.get()
        if span is None or span is step:
            return step if step is None else step.inner or step
        return span.inner or span
