"""Spans: named intervals of one rank, cheap to record.

A span costs training two clock reads, one append and the building of this object; everything a
batch needs beyond that (paths, dictionaries, columns) is made later by the sealing thread. So a
finished span is never changed: the sealing thread may be reading it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict, Unpack, cast

from rankscope._bounds import LINKS, NAME
from rankscope._checked import checked_step, hex_id
from rankscope._labels import SHORT, Label, labels, metrics, name_of, text_of
from rankscope_proto.names import SPAN_FLAGS, SpanKind, SpanStatus

if TYPE_CHECKING:
    from contextvars import Token

    from rankscope._recording import Recording

KINDS: dict[str, int] = {kind.value: kind.code for kind in SpanKind}
OK, ERROR, INTERRUPTED, CANCELLED = (status.code for status in SpanStatus)
IN_STEP_TRACE = SPAN_FLAGS["in_step_trace"]
_LOWER = 2**64 - 1
_LINK_BYTES = 160
"""Memory of a link: a tuple of three numbers."""

Link = tuple[int, int, int]
"""A linked span: trace id's upper and lower half, span id (0: the whole trace)."""

_get_ident = threading.get_ident


class SpanFields(TypedDict, total=False):
    """The fields of a span that few spans have.

    Attributes:
        links: Related spans, or (trace id, span id) as hex texts.
        thread_id: Session or turn; inherited; default: the trace.
        rollout_id: The application's rollout or episode; inherited.
        trace_id: 32 hex digits instead of a generated id.
        span_id: 16 hex digits instead of a generated id.
        parent_span_id: 16 hex digits; for a parent in another process.
    """

    links: "Sequence[Span | tuple[str, str]]"
    thread_id: str
    rollout_id: str
    trace_id: str
    span_id: str
    parent_span_id: str


class Span:
    """A named interval on one rank; made by `run.span`, `run.trace`, `run.start_span`.

    As a context manager it starts on entry and ends on exit; an exception that passes through
    makes its status `error`, leaves its type on the span, and goes on unchanged.

    Attributes:
        name: What it is called.
        kind: Code of its kind.
        status: Code of its status, 0 while open.
        at_step: Training step or episode; None outside one.
        attributes: Labels, None while there are none; change them with `set_attribute`.
        metrics: Numbers, None while there are none; change them with `log_metric`.
        text_bytes: Memory of its long text, which the ring has a budget for.
        inner: The span that new spans inside this one belong to, where it is not this one.
    """

    __slots__ = (
        "_recording",
        "_token",
        "at_step",
        "attributes",
        "depth",
        "end_mono_ns",
        "error_type",
        "flags",
        "id",
        "inner",
        "kind",
        "links",
        "metrics",
        "microstep",
        "name",
        "parent",
        "parent_id",
        "path",
        "phase_code",
        "rollout_id",
        "start_mono_ns",
        "status",
        "text_bytes",
        "thread",
        "thread_id",
        "trace",
    )

    count = 1
    section = "spans"

    def __init__(self, recording: "Recording", name: str, *, kind: str, parent: "Span | None") -> None:
        try:
            self.kind = KINDS[kind]
        except (KeyError, TypeError):
            raise ValueError(f"a span's kind is one of {', '.join(KINDS)}, not {kind!r}") from None
        self._recording = recording
        self._token: Token[Span | None] | None = None
        self.start_mono_ns = self.end_mono_ns = self.status = self.phase_code = self.thread = self.text_bytes = 0
        self.name = name if type(name) is str and len(name) <= SHORT else name_of(name, self)
        self.id = recording.new_span_id()
        self.attributes: dict[str, Label] | None = None
        self.metrics: dict[str, float] | None = None
        self.links: tuple[Link, ...] = ()
        self.error_type = ""
        self.path: str | None = None
        self.inner: Span | None = None
        self.parent = parent
        if parent is None:
            self.trace = recording.new_trace_id()
            self.parent_id = self.depth = self.flags = self.microstep = 0
            self.at_step: int | None = None
            self.thread_id = self.rollout_id = ""
        else:
            self.trace = parent.trace
            self.parent_id = parent.id
            self.depth = parent.depth + 1
            self.flags = parent.flags
            self.microstep = parent.microstep
            self.at_step = parent.at_step
            self.thread_id = parent.thread_id
            self.rollout_id = parent.rollout_id

    def __enter__(self) -> Self:
        recording = self._recording
        self._token = recording.current.set(self)
        if not self.start_mono_ns:
            self.thread = _get_ident()
            recording.open_spans[self.id] = self
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
            try:  # noqa: SIM105  # contextlib.suppress costs a third of a microsecond, an eighth of a span
                recording.current.reset(token)
            except ValueError:
                # Entered in another context, as a generator finalised elsewhere does: that context is gone.
                pass
        if error_class is not None:
            self._fail(error_class)
        if self.end_mono_ns:
            return
        # As `_end`: its call would cost a fiftieth of a span.
        self.end_mono_ns = now_ns
        self.status = self.status or OK
        recording.open_spans.pop(self.id, None)
        if recording.armed:
            recording.ring.append(self)
        else:
            recording.note_unrecorded(1)

    @property
    def trace_id(self) -> str:
        """The trace's id: 32 hex digits."""
        return f"{self.trace:032x}"

    @property
    def trace_hi(self) -> int:
        """Upper half of the trace's id."""
        return self.trace >> 64

    @property
    def trace_lo(self) -> int:
        """Lower half of the trace's id."""
        return self.trace & _LOWER

    @property
    def span_id(self) -> str:
        """The span's id: 16 hex digits."""
        return f"{self.id:016x}"

    @property
    def recording(self) -> "Recording":
        """Where it will be recorded."""
        return self._recording

    def span(
        self,
        name: str,
        kind: str = "custom",
        *,
        attributes: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        step: int | None = None,
        **fields: Unpack[SpanFields],
    ) -> "Span":
        """Make a child of this span; it starts when entered.

        Raises:
            ValueError: `kind`, `step` or an id is not one.
        """
        child = Span(self._recording, name, kind=kind, parent=self)
        if attributes is not None:
            child.attributes = labels(attributes, child)
        if metrics is not None or fields or step is not None:
            child.describe(metrics, step, fields)
        return child

    def set_attribute(self, key: str, value: object) -> None:
        """Set one label: numbers are kept as numbers, everything else as text."""
        if self.status:
            self._recording.note_fault("set_attribute after the span ended: not kept")
            return
        name = text_of(key, NAME + 1)
        self.attributes = labels({**(self.attributes or {}), name: value}, self)

    def log_metric(self, name: str, value: float) -> None:
        """Set one number of the span, such as a reward or a count of tokens."""
        if self.status:
            self._recording.note_fault("log_metric after the span ended: not kept")
            return
        self.metrics = metrics({**(self.metrics or {}), text_of(name, NAME + 1): value}, self)

    def note_fault(self, what: str) -> None:
        """Count something that could not be kept."""
        self._recording.note_fault(what)

    def start(self) -> Self:
        """Start now, without becoming the parent of spans made meanwhile; `end` ends it."""
        self.thread = _get_ident()
        self._recording.open_spans[self.id] = self
        self.start_mono_ns = self._recording.mono_ns()
        return self

    def end(self, error: BaseException | None = None) -> None:
        """End a started span; with `error` its status is `error`. A second call changes nothing."""
        if error is not None and not self.status:
            self._fail(type(error))
        self._end(self._recording.mono_ns())

    def interrupt(self) -> None:
        """End it because the run ends while it is open."""
        if not self.status:
            self.status = INTERRUPTED
            self.flags |= SPAN_FLAGS["interrupted"]
        self._end(self._recording.mono_ns())

    def describe(self, given: Mapping[str, float] | None, step: int | None, /, fields: SpanFields) -> None:
        """Set what few spans have: metrics, the step, and fields.

        Raises:
            ValueError: `step` or an id is not one.
            TypeError: a field nobody knows.
        """
        if given is not None:
            self.metrics = metrics(given, self)
        if step is not None:
            self.at_step = checked_step(step)
        for name, value in fields.items():
            setter = _FIELDS.get(name)
            if setter is None:
                raise TypeError(f"a span has no field {name!r}; it has {', '.join(sorted(_FIELDS))}")
            setter(self, value)

    def end_at(self, mono_ns: int) -> None:
        """End it at a monotonic time that was read already."""
        self._end(mono_ns)

    def finished(self, start_mono_ns: int, end_mono_ns: int) -> Self:
        """Give a span whose interval is known already to the recording."""
        self.thread = _get_ident()
        self.start_mono_ns = start_mono_ns
        self._end(end_mono_ns)
        return self

    def _fail(self, error_class: type[BaseException]) -> None:
        self.error_type = error_class.__qualname__[: NAME + 1]
        if issubclass(error_class, Exception):
            self.status = ERROR
        else:
            self.status = INTERRUPTED
            self.flags |= SPAN_FLAGS["interrupted"]

    def _end(self, now_ns: int) -> None:
        if self.end_mono_ns:
            return
        self.end_mono_ns = now_ns
        if not self.status:
            self.status = OK
        recording = self._recording
        recording.open_spans.pop(self.id, None)
        if recording.armed:
            recording.ring.append(self)
        else:
            recording.note_unrecorded(1)


class Trace(Span):
    """The root of a tree of spans of its own; made by `run.trace`."""

    __slots__ = ()


def link_to(target: "Span | tuple[str, str]") -> Link:
    """A link to a span, or to (trace id, span id) as hex texts.

    Raises:
        ValueError: an id is not one.
    """
    if isinstance(target, Span):
        return target.trace_hi, target.trace_lo, target.id
    trace_id, span_id = target
    trace = hex_id(trace_id, 32)
    return trace >> 64, trace & _LOWER, hex_id(span_id, 16)


def _set_links(span: Span, value: object) -> None:
    try:
        targets = tuple(islice(cast("Sequence[Span | tuple[str, str]]", value), LINKS + 1))
    except Exception as error:  # noqa: BLE001  # a foreign type may raise anything
        span.note_fault(f"links are a sequence, not a {type(value).__qualname__}: {text_of(error, NAME)}")
        return
    span.links = tuple(link_to(target) for target in targets if _is_target(target, span))
    span.text_bytes += _LINK_BYTES * len(span.links)


def _is_target(target: object, span: Span) -> bool:
    pair = cast("tuple[object, ...]", target) if isinstance(target, tuple) else ()
    if isinstance(target, Span) or len(pair) == 2:
        return True
    span.note_fault("a link is a span or a pair of ids: others are not kept")
    return False


def _set_trace_id(span: Span, value: object) -> None:
    span.trace = hex_id(value, 32)


def _set_span_id(span: Span, value: object) -> None:
    span.id = hex_id(value, 16)


def _set_parent_span_id(span: Span, value: object) -> None:
    span.parent, span.depth, span.parent_id = None, 0, hex_id(value, 16)


def _set_thread_id(span: Span, value: object) -> None:
    span.thread_id = name_of(value, span)


def _set_rollout_id(span: Span, value: object) -> None:
    span.rollout_id = name_of(value, span)


_FIELDS: dict[str, Callable[[Span, object], None]] = {
    "links": _set_links,
    "thread_id": _set_thread_id,
    "rollout_id": _set_rollout_id,
    "trace_id": _set_trace_id,
    "span_id": _set_span_id,
    "parent_span_id": _set_parent_span_id,
}
"""How each of `SpanFields` is set."""
