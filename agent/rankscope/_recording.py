"""What the parts of the SDK share while a run records: where rows go and what the process is doing.

The probe and the spans know a run only through this object. Nothing here raises into training
but what somebody asked to have raised there (`Deliberate`): what goes wrong is counted, and said once.
"""

import logging
import os
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

from rankscope._bounds import NAME
from rankscope._clock import Clock
from rankscope._identity import Identity
from rankscope._ids import Ids
from rankscope._labels import text_of
from rankscope._masks import Masks
from rankscope._ring import Ring
from rankscope._root_error import Deliberate
from rankscope._sampling import LeftOut, Sampling
from rankscope._tracing_options import TracingOptions
from rankscope.privacy import Preview

if TYPE_CHECKING:
    from contextvars import Token

    from rankscope._beacon import Beacon
    from rankscope._ring import Item
    from rankscope._span import Span
    from rankscope._span_ref import SpanRef
    from rankscope._step import LossListener, Step, StepListener

logger = logging.getLogger("rankscope")

MAX_FAULT_KINDS = 64
LABEL_BYTES = 1_024
"""Most bytes of the JSON of one label that is neither text nor a number."""

FORKED = "rows of a forked child, which is not the rank"
"""The fault that counts what a child recorded without a run of its own."""

_NO_PREVIEW = Preview("", is_redacted=False, is_truncated=False)
_living: "weakref.WeakSet[Recording]" = weakref.WeakSet()


class Recording:
    """The rows of one process of a run, on their way into the ring.

    Args:
        identity: Who records.
        clock: Time.
        ids: Where span ids come from.
        tracing: How much is kept, and what is masked; None: the defaults.

    Attributes:
        tracing: The same.
        current: The innermost open span of this thread or task, or a span elsewhere that it goes on from; a
            ContextVar, so that tasks do not see each other's.
        open_spans: Spans begun and not ended, each by itself: ids may be given, and given twice.
        waiting: What waits in the ring.
        quiet_items: As the ring's.
        masks: Takes secrets out of the texts of rows; for the sealing thread.
        sampling: Which traces and spans are kept.
        is_choosy: Whether sampling may leave any out.
        most_spans: Most spans of a trace that are kept.
        left_out: Counts spans that were not.
        beacon: Notes where this process stands, for its node's agent; None: nobody could read it.
        flush: Hands on what waits; the run says how.
        armed: Whether anything is recorded; False in a forked child and after the end.
        is_forked: Whether this is a forked child, where what is offered is counted only.
        faults: How often each kind of internal fault happened.
    """

    def __init__(self, identity: Identity, *, clock: Clock, ids: Ids, tracing: TracingOptions | None = None) -> None:
        self.identity = identity
        self.tracing = tracing or TracingOptions()
        self.clock = clock
        self.ids = ids
        self.ring = Ring(self.tracing.ring_rows)
        self.waiting = self.ring.items
        self.quiet_items = self.ring.quiet_items
        self.masks = Masks(self.tracing.redactor)
        self.sampling = Sampling(self.tracing)
        self.is_choosy = self.sampling.is_choosy
        self.most_spans = self.tracing.max_spans_per_trace
        self.left_out = LeftOut()
        self.beacon: Beacon | None = None
        self.flush: Callable[[], object] = _nothing
        self.mono_ns = clock.mono_ns
        self.new_span_id = ids.span_id
        self.new_trace_id = ids.trace_id
        # The process's own parent as the default: it is there in every thread, and costs a span nothing.
        self.current: ContextVar[SpanRef | None] = ContextVar("rankscope_span", default=self.tracing.parent)
        self.open_spans: dict[Span, Span] = {}
        self.armed = True
        self.is_forked = False
        self.faults: Counter[str] = Counter()
        self._step: ContextVar[Step | None] = ContextVar("rankscope_step", default=None)
        self._steps: list[Step] = []
        self._input_note: tuple[int, int] | None = None
        self._listeners: tuple[StepListener, ...] = ()
        self._loss_listeners: tuple[LossListener, ...] = ()
        self._row_listeners: tuple[Callable[[Item], object], ...] = ()
        _living.add(self)

    def append(self, item: "Item") -> None:
        """Take finished rows; never waits for I/O, never raises; full: drops and counts them."""
        if self.armed:
            self.ring.append(item)
            for listener in self._row_listeners:
                self._shielded(listener, item)
        else:
            self.note_unrecorded(item.count)

    def note_unrecorded(self, rows: int) -> None:
        """Count rows of a forked child; nobody looks into its log, so it is not said."""
        if self.is_forked:
            self.faults[FORKED] += rows

    def labelled(self, value: object) -> Preview:
        """A label that is neither text nor a number as short JSON."""
        return self.tracing.redactor.preview(value, max_bytes=LABEL_BYTES)

    def payload(self, value: object) -> Preview:
        """Bounded JSON of what goes in or comes out; empty if not armed."""
        return self.tracing.redactor.preview(value) if self.armed else _NO_PREVIEW

    def message(self, error: BaseException) -> Preview:
        """What an exception says, bounded."""
        return self.tracing.redactor.excerpt(text_of(error))

    def current_step(self) -> "Step | None":
        """The open step of this thread or task; without one, the last the process opened and did not end.

        The latter is for hooks: they run on threads of autograd, which inherit no context.
        """
        step = self._step.get()
        if step is not None and not step.status:
            return step
        try:
            return self._steps[-1]
        except IndexError:  # not asked before: another thread may end the last one meanwhile
            return None

    def enter_step(self, step: "Step") -> "Token[Step | None]":
        """Make a step the current one, here and for the process."""
        self._steps.append(step)
        return self._step.set(step)

    def leave_step(self, step: "Step", token: "Token[Step | None] | None") -> None:
        """Take one's own step back, whichever others were opened since."""
        with suppress(ValueError):  # left twice
            self._steps.remove(step)
        if token is not None:
            with suppress(ValueError):  # left in another context than entered: that one is gone
                self._step.reset(token)

    def add_step_listener(self, listener: "StepListener") -> None:
        """Tell `listener` of every step from now on."""
        self._listeners = (*self._listeners, listener)

    def remove_step_listener(self, listener: "StepListener") -> None:
        """Tell `listener` nothing any more."""
        self._listeners = tuple(other for other in self._listeners if other is not listener)

    def add_loss_listener(self, listener: "LossListener") -> None:
        """Call `listener(step, loss)` whenever training names its loss."""
        self._loss_listeners = (*self._loss_listeners, listener)

    def remove_loss_listener(self, listener: "LossListener") -> None:
        """Tell `listener` nothing any more."""
        self._loss_listeners = tuple(other for other in self._loss_listeners if other != listener)

    def add_row_listener(self, listener: "Callable[[Item], object]") -> None:
        """Call `listener` with whatever is appended from now on, in the thread that appends it."""
        self._row_listeners = (*self._row_listeners, listener)
        self.quiet_items = 0  # a span that ends then comes by way of `append`

    def remove_row_listener(self, listener: "Callable[[Item], object]") -> None:
        """Tell `listener` nothing any more."""
        self._row_listeners = tuple(other for other in self._row_listeners if other != listener)
        if not self._row_listeners:
            self.quiet_items = self.ring.quiet_items

    def tell_started(self, step: "Step") -> None:
        """Tell the listeners that a step began."""
        for listener in self._listeners:
            self._shielded(listener.step_started, step)

    def tell_ended(self, step: "Step") -> None:
        """Tell the listeners that a step ended: all of them, also where one raises what it was asked to."""
        with ExitStack() as telling:
            for listener in reversed(self._listeners):
                telling.callback(self._shielded, listener.step_ended, step)

    def tell_finishing(self) -> None:
        """Tell the listeners to hand over what they still hold: no row is taken after this."""
        for listener in self._listeners:
            self._shielded(listener.run_finishing)

    def tell_loss(self, step: "Step", loss: object) -> None:
        """Tell the listeners which tensor is the loss."""
        for listener in self._loss_listeners:
            self._shielded(listener, step, loss)

    def note_input(self, start_wall_ns: int, start_mono_ns: int) -> None:
        """A fetch outside any step began then and ended now; the next step adopts the last one."""
        del start_wall_ns  # all wall times come from one pair of clocks
        self._input_note = (start_mono_ns, max(start_mono_ns, self.mono_ns()))

    def take_input_note(self) -> tuple[int, int] | None:
        """The last fetch's start and end (monotonic ns), once."""
        note, self._input_note = self._input_note, None
        return note

    def note_fault(self, what: str) -> None:
        """Count something that went wrong inside, and say it the first time."""
        kind = what.partition(":")[0]
        if kind not in self.faults and len(self.faults) >= MAX_FAULT_KINDS:
            kind = "other"
        self.faults[kind] += 1
        if self.faults[kind] == 1:
            logger.warning("rankscope goes on without this: %s", what)

    def note_dropped(self, name: str, why: str) -> None:
        """Count a metric that has no number."""
        del name  # `why` says it
        self.note_fault(why)

    def _shielded(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Deliberate:
            raise
        except Exception as error:  # noqa: BLE001  # a listener's fault must not reach training
            self.note_fault(f"{type(error).__qualname__} in {text_of(callback, NAME)}: {text_of(error, NAME)}")


def _nothing() -> None:
    """Nobody hands anything on."""


def _disarm_in_child() -> None:
    """A forked child is not the rank: its ids would repeat, and its threads and its channel are gone."""
    for recording in tuple(_living):
        recording.is_forked = recording.is_forked or recording.armed
        recording.armed = False


os.register_at_fork(after_in_child=_disarm_in_child)
