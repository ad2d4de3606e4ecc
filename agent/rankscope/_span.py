"""Spans: named intervals of one rank, cheap to record.

A span costs training two clock reads, one append and the building of this object; everything a
batch needs beyond that (paths, dictionaries, columns) is made later by the sealing thread. So a
finished span is never changed: the sealing thread may be reading it.
"""

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from rankscope._bounds import NAME
from rankscope._carrier import carrier_of
from rankscope._checked import KINDS, checked_end, checked_name, kind_code
from rankscope._details import UNSET, Details
from rankscope._endings import INTERRUPTED, OK, status_of
from rankscope._keeping import NEVER, join, leave_out
from rankscope._labels import SHORT, Label, joined, labels, metrics, name_of, named
from rankscope._links import Linkable
from rankscope._span_events import SpanEvent
from rankscope._span_fields import SpanFields, relate, set_up
from rankscope._span_ref import NOTHING, Scope, SpanRef
from rankscope._wrap import Function, wrapped
from rankscope_proto.names import SPAN_FLAGS, GapCause

if TYPE_CHECKING:
    from contextvars import Token

    from rankscope._recording import Recording

_INTERRUPTED = SPAN_FLAGS["interrupted"]
_MOST_TEXT = 512 * 1024
"""Bytes of text that are counted for a span at most: labels set again and again are counted each time."""

_get_ident = threading.get_ident


class Span(SpanRef):
    """A named interval on one rank; made by `run.span`, `run.trace`, `run.start_span`.

    As a context manager it starts on entry and ends on exit; an exception that passes through
    makes its status `error`, leaves its type on the span, and goes on unchanged.

    Attributes:
        name: What it is called.
        kind: Code of its kind.
        status: Code of its status, 0 while open.
        attributes: Labels, None while there are none; change them with `add_attributes`.
        metrics: Numbers, None while there are none; change them with `log_metric`.
        details: What few spans have, None where it has none of it.
        phase_code: Part of the training step; 0 outside one.
        is_essential: Whether it is part of a step's own, which sampling never leaves out.
    """

    __slots__ = (
        "_recording",
        "_token",
        "attributes",
        "details",
        "end_mono_ns",
        "kind",
        "metrics",
        "name",
        "start_mono_ns",
        "status",
        "thread",
    )

    count = 1
    section = "spans"
    phase_code = 0
    is_essential = False

    # Positional, as it is made for every span: given by name the two last take twice as long.
    def __init__(self, recording: "Recording", name: str, kind: str, parent: SpanRef | None, /) -> None:
        try:
            self.kind = KINDS[kind]
        except (KeyError, TypeError):
            self.kind = kind_code(kind)
        self._recording = recording
        self._token: Token[SpanRef | None] | None = None
        self.start_mono_ns = self.end_mono_ns = self.status = 0
        self.attributes: dict[str, Label] | None = None
        self.metrics: dict[str, float] | None = None
        self.details: Details | None = None
        self.path = None
        if type(name) is str and 0 < len(name) <= SHORT and not name.isspace():
            self.name = name
        else:
            self.name = name_of(checked_name(name), self, field="name")
        self.id = recording.new_span_id()
        self.parent = parent
        if parent is None:
            self.trace = recording.new_trace_id()
            self.depth = 0
            self.scope = NOTHING
            return
        self.trace = parent.trace
        self.depth = parent.depth + 1
        self.scope = scope = parent.scope
        tree = scope.tree
        if tree is None:
            tree = join(self, parent)
        tree.spans += 1
        if tree.spans > recording.most_spans:
            leave_out(self, GapCause.BUDGET)

    def __enter__(self) -> Self:
        recording = self._recording
        if self._token is None and not self.status:  # else it is current already, or has ended
            self._token = recording.current.set(self)
        if not self.start_mono_ns:
            self.thread = _get_ident()
            recording.open_spans[self] = self
            self.start_mono_ns = recording.mono_ns()
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        recording = self._recording
        now_ns = recording.mono_ns()
        token = self._token
        if token is not None:
            self._token = None
            try:
                recording.current.reset(token)
            except ValueError:
                self._leave_here(token)
        if recording.open_spans.pop(self, None) is None:  # ended already, left out, or never begun
            return
        if error_class is None:
            self.status = OK
        else:
            self._fail(error_class, error)
        self.end_mono_ns = now_ns
        # As `_give`: its call would cost a fiftieth of a span.
        if self.details is None and recording.armed and len(recording.waiting) < recording.quiet_items:
            recording.waiting.append(self)
        else:
            self._give()

    @property
    def recording(self) -> "Recording":
        """Where it is recorded."""
        return self._recording

    @property
    def text_bytes(self) -> int:
        """Memory of its long text, which the ring has a budget for."""
        return 0 if self.details is None else self.details.text_bytes

    @property
    def is_left_out(self) -> bool:
        """Whether sampling or the cap of its trace left it out: it works as any, and is not recorded."""
        return self.start_mono_ns == NEVER

    def span(
        self,
        name: str,
        kind: str = "custom",
        *,
        attributes: Mapping[str, object] | None = None,
        **fields: Unpack[SpanFields],
    ) -> "Span":
        """Make a child of this span; it starts when entered, or with `start`.

        Args:
            name: What it is called: some text, cut at 512 bytes.
            kind: One of `SpanKind`, in whatever case.
            attributes: Labels; numbers are kept as numbers, all else as text; at most 32 KiB.
            fields: `SpanFields`.

        Raises:
            TypeError: `name`, `kind`, `rank` or `capture` is of another type, or there is no such field.
            ValueError: `name`, `kind`, `capture`, `step`, `rank` or an id is not one.
        """
        return set_up(Span(self._recording, name, kind, self), attributes=attributes, fields=fields)

    def start_span(
        self,
        name: str,
        kind: str = "custom",
        *,
        attributes: Mapping[str, object] | None = None,
        **fields: Unpack[SpanFields],
    ) -> "Span":
        """As `span`, begun already; `finish` ends it."""
        return set_up(Span(self._recording, name, kind, self), attributes=attributes, fields=fields).start()

    def start(self) -> Self:
        """Start now, without becoming the parent of spans made meanwhile; `finish` ends it."""
        if not self.start_mono_ns:
            self.thread = _get_ident()
            self._recording.open_spans[self] = self
            self.start_mono_ns = self._recording.mono_ns()
        return self

    def finish(self, status: str = "ok", *, output: object = UNSET, error: BaseException | None = None) -> None:
        """End a started span. A second call changes nothing.

        Args:
            status: ok, error, cancelled or interrupted.
            output: As `set_output`.
            error: What it failed with: its type is kept, and its message under capture "preview"; it says
                the status where that is not given.

        Raises:
            TypeError: `status` is no text, or `error` no exception.
            ValueError: `status` is none of them.
        """
        code = checked_end(status, error)
        if self._recording.open_spans.pop(self, None) is None:
            return
        if output is not UNSET:
            self.set_output(output)
        if error is not None:
            self._fail(type(error), error)
        if code != OK or error is None:
            self._end_as(code)
        self.end_mono_ns = self._recording.mono_ns()
        self._give()

    def set_output(self, value: object) -> None:
        """Say what came out; None is an output. Previewed when the span ends, and only under capture "preview"."""
        if self._is_open("set_output") and self.details is not None and self.details.is_captured:
            self.details.output = value

    def add_attributes(self, attributes: Mapping[str, object]) -> None:
        """Set labels: numbers are kept as numbers, everything else as text."""
        if not self._is_open("add_attributes"):
            return
        added = labels(attributes, self)
        if self.attributes:
            rare, size = self.rare(), self.rare().attribute_bytes
            added, rare.attribute_bytes = joined(self.attributes, added, owner=self, field="attributes", size=size)
        self.attributes = added

    def log_metric(self, name: str | Mapping[str, float], value: float | None = None) -> None:
        """Set a number of the span, such as a reward or a count of tokens, or several: a mapping alone."""
        if not self._is_open("log_metric"):
            return
        added = metrics(named(name, value), self)
        if self.metrics:
            rare, size = self.rare(), self.rare().metric_bytes
            added, rare.metric_bytes = joined(self.metrics, added, owner=self, field="metrics", size=size)
        self.metrics = added

    def add_event(self, name: str, attributes: Mapping[str, object] | None = None) -> None:
        """Note that something happened now.

        Args:
            name: Short title: some text, cut at 512 bytes.
            attributes: Labels of it, as a span's.

        Raises:
            TypeError, ValueError: `name` is not one.
        """
        title = checked_name(name)
        if self._is_open("add_event") and not self.is_left_out:
            event = SpanEvent(self, self._recording.mono_ns())
            event.name = name_of(title, event, field="name")
            if attributes is not None:
                event.attributes = labels(attributes, event)
            self._recording.append(event)

    def add_link(self, target: Linkable) -> None:
        """Relate it to a span, a carrier, or a pair of trace id and span id; 256 are kept.

        Raises:
            ValueError: an id is not one.
        """
        if self._is_open("add_link"):
            relate(self, [target])

    def flush(self) -> None:
        """As `run.flush`."""
        self._recording.flush()

    def hold(self, text_bytes: int, /) -> None:
        """Count memory of long text."""
        details = self.rare()
        details.text_bytes = min(details.text_bytes + text_bytes, _MOST_TEXT)

    def note_dropped(self, name: str, why: str, /, more: int = 0) -> None:
        """Count something that could not be kept, and name it on the span; with so many more of its field."""
        self.rare().drop(name, more)
        said = self._recording.tracing.redactor.text(name)  # for the program's log; the row's own is masked when sealed
        self._recording.note_fault(f"{name.partition('.')[0]} of a span: {why} ({said})")

    def preview(self, value: object, name: str, /) -> str:
        """Bounded JSON of a value that is neither text nor a number, for the label of this name."""
        made = self._recording.labelled(value)
        return self.rare().kept(made, name) if made.is_redacted or made.is_truncated else made.text

    def rare(self) -> Details:
        """What few spans have, to be changed."""
        details = self.details
        if details is None:
            details = self.details = Details()
        return details

    def own_scope(self) -> Scope:
        """What its children take over, to be changed: nobody else has it yet."""
        self.scope = self.scope.copy()
        return self.scope

    def capture_inputs(self, inputs: object) -> None:
        """Keep a preview of what goes in, where payloads are captured."""
        details = self.details
        if details is not None and details.is_captured and not self.is_left_out:
            details.inputs = self._captured(details, inputs, "inputs")

    def interrupt(self) -> None:
        """End it because the run ends while it is open."""
        self._end(INTERRUPTED, self._recording.mono_ns())

    def end_at(self, mono_ns: int) -> None:
        """End it well, at a monotonic time that was read already."""
        self._end(OK, mono_ns)

    def finished(self, start_mono_ns: int, end_mono_ns: int) -> Self:
        """Give a span whose interval is known already to the recording."""
        self.start_mono_ns, self.end_mono_ns, self.status = start_mono_ns, end_mono_ns, OK
        self._give()
        return self

    def _is_open(self, call: str) -> bool:
        if self.status:
            self._recording.note_fault(f"{call} after the span ended: not kept")
        return not self.status

    def _leave_here(self, token: "Token[SpanRef | None]") -> None:
        """It was entered in another context: that is gone, or another thread goes on with a generator there."""
        current = self._recording.current
        if current.get() is self:
            before = token.old_value
            current.set(before if isinstance(before, SpanRef) else None)

    def _fail(self, error_class: type[BaseException], error: BaseException | None) -> None:
        self._end_as(status_of(error_class, error))
        if self.status == OK:
            return
        details = self.rare()
        details.error_type = error_class.__qualname__[: NAME + 1]
        if details.is_captured and error is not None:
            details.error_preview = details.kept(self._recording.message(error), "error_preview")

    def _end(self, status: int, mono_ns: int) -> None:
        if self._recording.open_spans.pop(self, None) is not None:
            self._end_as(status)
            self.end_mono_ns = mono_ns
            self._give()

    def _end_as(self, status: int) -> None:
        self.status = status
        if status == INTERRUPTED:
            self.rare().flags |= _INTERRUPTED

    def _captured(self, details: Details, value: object, name: str, /) -> str:
        preview = details.kept(self._recording.payload(value), name)
        self.hold(len(preview))
        return preview

    def _give(self) -> None:
        details = self.details
        if details is not None and details.output is not UNSET:
            details.outputs = self._captured(details, details.output, "outputs")
            details.output = UNSET
        self._recording.append(self)

    def context(self) -> dict[str, object]:
        """What work for this span elsewhere needs to know: plain JSON, for `attach_trace_context` or `init(carrier=)`.

        Beside run, launch, span and what children take over it has a W3C `traceparent`, for other systems.
        """
        return carrier_of(self)

    def wrap(self, function: Function) -> Function:
        """The function, this span current whenever its code runs: for threads, tasks, callbacks and generators.

        Raises:
            TypeError: it cannot be called.
        """
        return wrapped(function, self._recording.current, self)


class Trace(Span):
    """The root of a tree of spans of its own; made by `run.trace`."""

    __slots__ = ()
