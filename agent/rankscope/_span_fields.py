"""The fields of a span that a call may name beside its name, kind and attributes, and how each is set.

Promises: a wrong id, rank, step or capture is said at once; whatever else is wrong with the data costs that
datum alone, and the span says so.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, TypeVar

from rankscope._bounds import LINKS, NAME
from rankscope._checked import checked_rank, checked_step, hex_id, is_preview
from rankscope._keeping import part, sample
from rankscope._labels import labels, metrics, name_of, text_of
from rankscope._links import LINK_BYTES, Link, Linkable, link_to, targets_of
from rankscope._span_ref import RemoteParent, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rankscope._span import Span


class SpanFields(TypedDict, total=False):
    """The fields of a span that few spans have; None: as if it were not given.

    Attributes:
        metrics: Numbers of the span, such as a reward or counts of tokens; at most 16 KiB.
        step: Training step or episode, a whole number of at least 0; inherited.
        rank: Rank to show instead of the process's own, at least 0; inherited.
        thread_id: Session or turn; inherited; default: the trace.
        rollout_id: The application's rollout or episode; inherited.
        links: Related spans: spans, carriers, mappings or pairs of trace id and span id; at most 256.
        capture: "off", or "preview": keep bounded, redacted previews of inputs, output and exception message.
        inputs: What goes in; previewed at once, and only under "preview".
        trace_id: 32 hex digits instead of a generated id; a trace other than the parent's has no parent here.
        span_id: 16 hex digits instead of a generated id.
        parent_span_id: 16 hex digits; for a parent in another process.
    """

    metrics: Mapping[str, float] | None
    step: float | None
    rank: int | None
    thread_id: str | None
    rollout_id: str | None
    links: "Iterable[Linkable] | Linkable | None"
    capture: str | None
    inputs: object
    trace_id: str | None
    span_id: str | None
    parent_span_id: str | None


Made = TypeVar("Made", bound="Span")


def set_up(span: Made, *, attributes: Mapping[str, object] | None, fields: SpanFields) -> Made:
    """The span with its fields and attributes set.

    Raises:
        TypeError, ValueError: as `describe`.
    """
    if fields or span.recording.is_choosy:
        describe(span, fields)
    if attributes is not None:
        span.attributes = labels(attributes, span)
    return span


def describe(span: "Span", fields: Mapping[str, object]) -> None:
    """Set fields of a span that nobody has seen yet, and decide whether sampling keeps it.

    Args:
        span: The span.
        fields: `SpanFields`.

    Raises:
        TypeError: a field that there is not, a rank that is no number, a capture that is no text.
        ValueError: an id, a step, a rank or a capture is not one.
    """
    scope: Scope | None = None
    trace_id = fields.get("trace_id")
    if trace_id is not None:
        _set_trace_id(span, trace_id)
    for name, value in fields.items():
        if name in _SCOPED:
            if value is not None:
                scope = scope or span.own_scope()
                attribute, read = _SCOPED[name]
                setattr(scope, attribute, read(value, span))
        elif name in _SETTERS:
            if value is not None:
                _SETTERS[name](span, value)
        elif name not in _BESIDE:
            raise TypeError(f"a span has no field {name!r}; it has {', '.join(sorted(_NAMES))}")
    if span.recording.is_choosy:
        sample(span)
    if "inputs" in fields:
        span.capture_inputs(fields["inputs"])


def relate(span: "Span", targets: Sequence[object]) -> None:
    """Link the span to all targets that are `Linkable`, as long as there is room.

    Raises:
        ValueError: an id is not one.
    """
    links = [link for link in map(_link_to, targets) if link is not None]
    details = span.rare()
    if len(links) < len(targets):
        span.note_dropped("links", "a link is a span, a carrier, or a pair of ids")
    if len(links) + len(details.links) > LINKS:
        span.note_dropped("links", f"more than {LINKS}")
        links = links[: LINKS - len(details.links)]
    details.links = (*details.links, *links)
    span.hold(LINK_BYTES * len(links))


def _link_to(target: object) -> Link | None:
    try:
        return link_to(target)
    except ValueError:  # an id that is none
        raise
    except Exception:  # noqa: BLE001  # a foreign type may raise anything, also when asked what it is
        return None


def _set_trace_id(span: "Span", value: object) -> None:
    trace = hex_id(value, 32)
    if trace != span.trace:
        part(span)
    span.trace = trace


def _set_span_id(span: "Span", value: object) -> None:
    span.id = hex_id(value, 16)


def _set_parent(span: "Span", value: object) -> None:
    parent_id = hex_id(value, 16)
    if span.parent is None or span.parent.id != parent_id:
        span.parent, span.depth = RemoteParent(span.trace, parent_id, scope=span.scope), 0


def _set_metrics(span: "Span", value: object) -> None:
    span.metrics = metrics(value, span)  # pyright: ignore[reportArgumentType]  # what is none is noted


def _set_links(span: "Span", value: object) -> None:
    try:
        targets = targets_of(value)
    except Exception as error:  # noqa: BLE001  # a foreign type may raise anything
        span.note_dropped("links", f"they are a sequence, not a {type(value).__qualname__}: {text_of(error, NAME)}")
        return
    relate(span, targets)


def _set_capture(span: "Span", value: object) -> None:
    if is_preview(value):
        span.rare().is_captured = True


_SETTERS: "dict[str, Callable[[Span, object], None]]" = {
    "metrics": _set_metrics,
    "links": _set_links,
    "capture": _set_capture,
    "span_id": _set_span_id,
    "parent_span_id": _set_parent,
}
_SCOPED: "dict[str, tuple[str, Callable[[object, Span], object]]]" = {
    "step": ("at_step", lambda value, _: checked_step(value)),
    "rank": ("rank", lambda value, _: checked_rank(value)),
    "thread_id": ("thread_id", lambda value, span: name_of(value, span, field="thread_id")),
    "rollout_id": ("rollout_id", lambda value, span: name_of(value, span, field="rollout_id")),
}
_BESIDE = frozenset({"trace_id", "inputs"})
_NAMES = frozenset(SpanFields.__annotations__)
