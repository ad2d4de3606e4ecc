"""A request's body as events: every field read, every rule checked, before anything of it is kept.

Pure: values in, values out. Promises: what passes can be stored as it is (no row made of it is refused later), and a
refusal names the event by its index, the field, and what was expected.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import orjson

from rankscope.front import readers
from rankscope.front.errors import InvalidRequestError
from rankscope.front.readers import Wrong
from rankscope_proto.constructors import TIME_HIGH, TIME_LOW

MAX_EVENTS = 500
"""Of one request."""

SLACK_NS = 10**9
"""How much earlier than its start a span may end: clocks are set while programs run."""

AHEAD_NS = 86_400 * 10**9
"""How far ahead of this machine's clock a client's may be."""

CLOSING = frozenset({"finished", "exception", "interrupted"})
"""Event kinds that end a span."""

_STATUS = {"finished": "ok", "exception": "error", "interrupted": "interrupted"}
"""What a closing event means that names no status, or says `running`."""

_REQUIRED: Mapping[str, Callable[[object], object]] = {
    "trace_id": readers.trace_id,
    "span_id": readers.span_id,
    "event_id": readers.event_id,
    "sequence": readers.sequence,
    "event_kind": readers.one_of(readers.EVENT_KINDS),
    "name": readers.name,
    "started_at": readers.moment_ns,
}
_OPTIONAL: Mapping[str, Callable[[object], object]] = {
    "parent_span_id": readers.parent_id,
    "kind": readers.kind,
    "status": readers.one_of(readers.STATUSES),
    "step": readers.step,
    "rank": readers.rank,
    "thread_id": readers.short,
    "rollout_id": readers.short,
    "ended_at": readers.moment_ns,
    "duration_ms": readers.duration_ns,
    "input_preview": readers.preview,
    "output_preview": readers.preview,
    "error_preview": readers.preview,
    "error_type": readers.short,
    "attributes": readers.attributes,
    "metrics": readers.metrics,
    "links": readers.links,
    "content_policy": readers.one_of(readers.POLICIES),
    "redaction_state": readers.one_of(readers.REDACTIONS),
    "truncated": readers.switch,
}
_READERS = {**_REQUIRED, **_OPTIONAL}
_PREVIEWS = ("input_preview", "output_preview", "error_preview")


@dataclass(frozen=True, slots=True)
class Event:
    """One event of one span, as it was read.

    Attributes:
        trace: Trace id, 16 bytes.
        span: Span id, 8 bytes.
        sequence: Its number in the span.
        kind: A word of `readers.EVENT_KINDS`.
        started_ns: Start of the span, ns since the epoch.
        stated: Every other field that it states, by name; null counts as not stated.
    """

    trace: bytes
    span: bytes
    sequence: int
    kind: str
    started_ns: int
    stated: Mapping[str, object]

    @property
    def is_closing(self) -> bool:
        """Whether it ends its span."""
        return self.kind in CLOSING

    @property
    def parent(self) -> str:
        """Hex id of the parent; "" where it states none."""
        return str(self.stated.get("parent_span_id", ""))

    @property
    def status(self) -> str:
        """How the span stands with it."""
        said = str(self.stated.get("status", "running"))
        return _STATUS[self.kind] if self.is_closing and said == "running" else said


@dataclass(frozen=True, slots=True)
class Request:
    """The events of a body.

    Attributes:
        events: In the order in which they came.
        unknown: Fields that are not known, and so not kept: name → events that have it.
    """

    events: Sequence[Event]
    unknown: Mapping[str, int] = field(default_factory=dict[str, int])


def parsed(body: bytes) -> object:
    """A body as JSON.

    Raises:
        InvalidRequestError: It is none; says where.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is no JSON: {error}", hint='send {"events": [...]}') from None


def canonical(document: object, *, now_ns: int) -> bytes:
    """A parsed body in one writing, whatever the order of its names was.

    Raises:
        InvalidRequestError: It is nested too deep; names the event and the field, where an event's field is.
    """
    try:
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        read(document, now_ns=now_ns)
        raise InvalidRequestError(f"the body is nested deeper than {readers.MAX_DEPTH}") from None


def read(document: object, *, now_ns: int) -> Request:
    """The events of a parsed body.

    Args:
        document: What `parsed` returned.
        now_ns: This machine's wall clock.

    Raises:
        InvalidRequestError: One of them cannot be meant; names its index and the field.
    """
    unknown: Counter[str] = Counter()
    events: list[Event] = []
    seen: set[object] = set()
    for index, given in enumerate(_listed(document)):
        place = f"events[{index}]"
        if not isinstance(given, dict):
            raise InvalidRequestError(f"{place} is no object")
        fields = cast("dict[str, object]", given)
        unknown.update(fields.keys() - _READERS.keys())
        found = _fields(fields, place)
        event = _event(found)
        _check_times(event, place, now_ns=now_ns)
        _check_contents(event, place)
        _check_twice(event, str(found["event_id"]), place=place, seen=seen)
        events.append(event)
    _check_parents(events)
    return Request(events, dict(unknown))


def _listed(document: object) -> Sequence[object]:
    listed = cast("dict[str, object]", document).get("events") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise InvalidRequestError("the body has no list `events`", hint='send {"events": [...]}')
    events = cast("list[object]", listed)
    if not 0 < len(events) <= MAX_EVENTS:
        raise InvalidRequestError(
            f"events has {len(events)} entries: a request has 1 to {MAX_EVENTS}", hint="send the rest in another one"
        )
    return events


def _fields(given: Mapping[str, object], place: str) -> dict[str, object]:
    """What the event states, each field read."""
    found: dict[str, object] = {}
    for name in given:
        reader, value = _READERS.get(name), given[name]
        if reader is None or (value is None and name in _OPTIONAL):
            continue
        try:
            found[name] = reader(value)
        except Wrong as error:
            raise InvalidRequestError(f"{place}.{name} {error.message}", expected=error.expected) from None
    for name in _REQUIRED:
        if name not in found:
            raise InvalidRequestError(f"{place}.{name} is missing", hint=f"every event has {', '.join(_REQUIRED)}")
    return found


def _event(found: Mapping[str, object]) -> Event:
    stated = {name: value for name, value in found.items() if name in _OPTIONAL}
    stated["name"] = found["name"]
    return Event(
        cast("bytes", found["trace_id"]),
        cast("bytes", found["span_id"]),
        cast("int", found["sequence"]),
        str(found["event_kind"]),
        cast("int", found["started_at"]),
        stated,
    )


def _check_times(event: Event, place: str, *, now_ns: int) -> None:
    ended = event.stated.get("ended_at")
    latest = min(TIME_HIGH - 1, now_ns + AHEAD_NS)
    for name, moment in (("started_at", event.started_ns), ("ended_at", ended)):
        if moment is not None and not TIME_LOW <= cast("int", moment) <= latest:
            raise InvalidRequestError(
                f"{place}.{name} is before 2000 or more than a day ahead of this machine's clock",
                hint="set the clock of the client right",
            )
    if ended is not None and event.started_ns - cast("int", ended) > SLACK_NS:
        raise InvalidRequestError(f"{place}.ended_at is more than a second before started_at")


def _check_contents(event: Event, place: str) -> None:
    if event.parent == event.span.hex():
        raise InvalidRequestError(f"{place}.parent_span_id is the span itself")
    if event.stated.get("content_policy", "off") != "off":
        return
    for name in _PREVIEWS:
        if event.stated.get(name):
            raise InvalidRequestError(f"{place}.{name} is there, and content_policy is off", expected=["preview"])
    if event.stated.get("redaction_state") == "captured":
        raise InvalidRequestError(f"{place}.redaction_state is captured, and content_policy is off")


def _check_twice(event: Event, event_id: str, *, place: str, seen: set[object]) -> None:
    number = (event.trace, event.span, event.sequence)
    if event_id in seen:
        raise InvalidRequestError(f"{place}.event_id {event_id} was there before: each event has its own")
    if number in seen:
        raise InvalidRequestError(f"{place}.sequence {event.sequence} was there before for span {event.span.hex()}")
    seen.update((event_id, number))


def _check_parents(events: Sequence[Event]) -> None:
    """A span has one parent in a request, and no chain of parents comes back to itself."""
    parents: dict[tuple[bytes, str], str] = {}
    for index, event in enumerate(events):
        known = parents.get((event.trace, event.span.hex()), "")
        if event.parent and known and known != event.parent:
            raise InvalidRequestError(f"events[{index}].parent_span_id is {event.parent}, and was {known} before")
        if event.parent or known:
            parents[event.trace, event.span.hex()] = event.parent or known
    for trace, first in parents:
        _check_chain(parents, trace, first)


def _check_chain(parents: Mapping[tuple[bytes, str], str], trace: bytes, first: str, /) -> None:
    node: str | None = first
    for _ in range(len(parents)):
        node = parents.get((trace, node or ""))
        if node is None:
            return
        if node == first:
            raise InvalidRequestError(f"the span {first} is among its own ancestors: parent_span_id goes round")
