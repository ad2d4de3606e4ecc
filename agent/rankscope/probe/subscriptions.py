"""Events of a probe on their way to those who subscribed.

Training hands rows over once a step and goes on: nothing here waits for a subscriber. What finds no room
in its queue is counted, and told to it as a gap as soon as there is room again. Events of one step are put
in order of time before they are told; where rows travel from a device and arrive a step later, everything
waits a step with them.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rankscope._block import Block
from rankscope._span import Span
from rankscope.probe.events import EventFilter, GapEvent, HitEvent, ProbeEvent, SpanEvent, StatisticsEvent
from rankscope.probe.names import base_name, flag_names, is_named, phase_of, role_of
from rankscope.probe.ports import Recording
from rankscope.probe.rows import Row
from rankscope_proto.names import GapCause, Role

MOST_PENDING = 10_000
"""Events between two steps before they are told without waiting for the next: outside of steps no row comes."""

_Numbered = tuple[int, ProbeEvent]
"""An event, and its number in the order in which events became known."""


def _time_of(numbered: _Numbered) -> int:
    return numbered[1].time_ns


class Stream:
    """What one subscriber reads: a `Subscription`.

    Args:
        wanted: Which events.
        forget: Called when it is closed.
        first: Number of the first event that it is told of.
        since_ns: Wall clock; rows of before are not told.
    """

    def __init__(
        self, wanted: EventFilter, forget: Callable[["Stream"], object], *, first: int = 0, since_ns: int = 0
    ) -> None:
        self._wanted = wanted
        self._first, self._since_ns = first, since_ns
        self._forget = forget
        self._waiting: SimpleQueue[ProbeEvent | None] = SimpleQueue()
        self._dropped = 0
        self._dropped_since = 0
        self._matches: dict[tuple[str, str, Role], bool] = {}
        self._is_closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ProbeEvent:
        event = self._waiting.get()
        if event is None:
            self._waiting.put(None)  # for whoever asks again
            raise StopIteration
        return event

    def drain(self) -> list[ProbeEvent]:
        """The events that wait now."""
        return list(self._now())

    def _now(self) -> Iterator[ProbeEvent]:
        with suppress(Empty):
            while (event := self._waiting.get_nowait()) is not None:
                yield event
            self._waiting.put(None)

    def close(self) -> None:
        """Take no more events; those that wait are still iterated over."""
        if self._is_closed:
            return
        self._is_closed = True
        self._forget(self)
        if self._dropped:
            self._waiting.put(self._gap())
        self._waiting.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.close()

    def wants(self, kind: type[ProbeEvent]) -> bool:
        """Whether it wants events of a kind."""
        return not self._wanted.kinds or kind in self._wanted.kinds

    def wants_node(self, node: str, module: str, *, role: Role) -> bool:
        """Whether it wants what is about a tensor."""
        key = (node, module, role)
        known = self._matches.get(key)
        if known is None:
            wanted, names = self._wanted, {node, base_name(node), module}
            is_wanted = not wanted.nodes or any(is_named(glob, name) for glob in wanted.nodes for name in names)
            known = self._matches[key] = is_wanted and (not wanted.roles or role in wanted.roles)
        return known

    def is_new(self, number: int, event: ProbeEvent) -> bool:
        """Whether an event is of after the subscription."""
        return number >= self._first and (not isinstance(event, StatisticsEvent) or event.time_ns >= self._since_ns)

    def offer(self, event: ProbeEvent) -> None:
        """Take an event, or count it where there is no room."""
        if self._is_closed:
            return
        room = self._wanted.most_waiting - self._waiting.qsize()
        if room < 1 or (self._dropped and room < 2):
            self._dropped_since = self._dropped_since or event.time_ns
            self._dropped += 1
            return
        if self._dropped:
            self._waiting.put(self._gap())
        self._waiting.put(event)

    def _gap(self) -> GapEvent:
        dropped, since = self._dropped, self._dropped_since
        self._dropped = self._dropped_since = 0
        detail = f"{dropped} events found no room: the subscriber reads too slowly, or most_waiting is too small"
        return GapEvent(since, None, GapCause.RING_FULL, detail, dropped)


class Subscribers:
    """Everybody who subscribed to one probe.

    Args:
        recording: Of the run; tells of spans and gaps, as long as somebody subscribes.
        is_late: Whether rows may arrive a step after they were measured, as from a device.

    Attributes:
        is_late: The same; it is another where the model has moved.
    """

    def __init__(self, recording: Recording, *, is_late: bool) -> None:
        self._recording = recording
        self._clock = recording.clock
        self.is_late = is_late
        self._streams: tuple[Stream, ...] = ()
        self._numbers = count()
        self._pending: deque[_Numbered] = deque()
        self._held: list[_Numbered] = []
        self._told_ns = 0
        self._is_closed = False
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return bool(self._streams)

    def add(self, wanted: EventFilter) -> Stream:
        """A new subscriber's stream."""
        with self._lock:
            stream = Stream(wanted, self._forget, first=next(self._numbers), since_ns=self._clock.wall_ns())
            if self._is_closed:
                stream.close()
                return stream
            if not self._streams:
                self._recording.add_row_listener(self.note_recorded)
            self._streams = (*self._streams, stream)
        return stream

    def _forget(self, stream: Stream) -> None:
        with self._lock:
            self._streams = tuple(other for other in self._streams if other is not stream)
            if not self._streams:
                self._recording.remove_row_listener(self.note_recorded)
                self._pending.clear()
                self._held = []

    def note(self, event: ProbeEvent) -> None:
        """Something happened; it is told when the step ends."""
        if self._streams:
            self._pending.append((next(self._numbers), event))
            if len(self._pending) > MOST_PENDING:
                self.tell()

    def note_recorded(self, item: object) -> None:
        """Take spans and gaps from what the run records."""
        if isinstance(item, Span):
            self.note(self._span(item))
        elif isinstance(item, Block) and item.section == "gaps":
            for place in range(item.count):
                self.note(_gap(item, place))

    def _span(self, span: Span) -> SpanEvent:
        phase = phase_of(span.phase_code) if span.phase_code else None
        duration_ns = span.end_mono_ns - span.start_mono_ns
        return SpanEvent(self._clock.wall_at(span.end_mono_ns), span.scope.at_step, span.name, phase, duration_ns)

    def rows(self, rows: Sequence[Row]) -> None:
        """A step has ended: tell what happened, and the statistics of these rows."""
        streams = [stream for stream in self._streams if stream.wants(StatisticsEvent)]
        for row in rows if streams else ():
            subject = row.subject
            role = role_of(subject.role)
            if any(stream.wants_node(subject.name, subject.module, role=role) for stream in streams):
                self._pending.append((next(self._numbers), statistics_event(row)))
        self.tell(is_whole=not self.is_late)

    def tell(self, *, is_whole: bool = True) -> None:
        """Tell what happened so far, in order of time; unless `is_whole`, only what rows may no longer come between."""
        with self._lock:
            events = self._held
            while self._pending:
                events.append(self._pending.popleft())
            events.sort(key=_time_of)
            until = self._told_ns
            ready = events if is_whole else [event for event in events if _time_of(event) < until]
            self._held = events[len(ready) :]
            self._told_ns = self._clock.wall_ns()
            for stream in self._streams:
                _tell(stream, ready)

    def close(self) -> None:
        """Tell what is left, and end every iteration, also of those who come later."""
        self._is_closed = True
        self.tell()
        for stream in self._streams:
            stream.close()


def _tell(stream: Stream, events: Iterable[_Numbered]) -> None:
    for number, event in events:
        if not stream.wants(type(event)) or not stream.is_new(number, event):
            continue
        is_of_node = isinstance(event, StatisticsEvent | HitEvent)
        if not is_of_node or stream.wants_node(event.node, event.module, role=event.role):
            stream.offer(event)


def statistics_event(row: Row) -> StatisticsEvent:
    """A row as subscribers see it."""
    subject, numbers = row.subject, row.numbers
    pairs = zip(numbers._fields, numbers, strict=True)
    values: Mapping[str, int | float | tuple[int, ...]] = {
        name: value for name, value in pairs if value is not None and value != ()
    }
    return StatisticsEvent(
        row.time_ns,
        row.step,
        row.microstep,
        phase_of(row.phase),
        subject.name,
        subject.module,
        role_of(subject.role),
        row.tensor.dtype,
        row.tensor.shape,
        flag_names(row.flags),
        values,
    )


def _gap(block: Block, place: int) -> GapEvent:
    columns = block.columns
    step, count = columns.get("step_from"), columns.get("count")
    return GapEvent(
        int(columns["start"][place]),
        None if step is None else int(step[place]),
        GapCause(str(columns["cause"][place])),
        str(columns["detail"][place]) if "detail" in columns else "",
        None if count is None else int(count[place]),
    )


if TYPE_CHECKING:
    from rankscope.probe.contract import Subscription

    _conforms: type[Subscription] = Stream
