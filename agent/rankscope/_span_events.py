"""Events of spans: what happened at one moment inside one, as rows of the section `events`."""

import json
import math
from typing import TYPE_CHECKING, ClassVar

from rankscope._block import Block, Column
from rankscope._checked import MAX_INT64
from rankscope._labels import number_of
from rankscope.privacy import number_name
from rankscope_proto.names import EventKind, Severity

if TYPE_CHECKING:
    from rankscope._clock import Clock
    from rankscope._labels import Label
    from rankscope._masks import Masks
    from rankscope._span import Span


class SpanEvent:
    """Something that happened in a span.

    Args:
        span: The span.
        mono_ns: Monotonic time of it.

    Attributes:
        name: Short title.
        attributes: Labels of it, None where it has none.
        text_bytes: Memory of its long text, which the ring has a budget for.
    """

    __slots__ = ("attributes", "mono_ns", "name", "span", "text_bytes")

    count: ClassVar[int] = 1
    section: ClassVar[str] = "events"

    def __init__(self, span: "Span", mono_ns: int) -> None:
        self.span, self.name, self.mono_ns = span, "", mono_ns
        self.attributes: dict[str, Label] | None = None
        self.text_bytes = 0

    def hold(self, text_bytes: int, /) -> None:
        """Count memory of long text."""
        self.text_bytes += text_bytes

    def note_dropped(self, name: str, why: str, /, more: int = 0) -> None:
        """Count something that could not be kept, and name it on the span; with so many more of its field."""
        self.span.note_dropped(f"event.{name}", why, more)

    def preview(self, value: object, name: str, /) -> str:
        """Bounded JSON of a value that is neither text nor a number, for the label of this name."""
        return self.span.preview(value, f"event.{name}")


def event_block(event: SpanEvent, clock: "Clock", *, masks: "Masks") -> Block:
    """One row of `events`: its payload is the attributes as a JSON object, or empty."""
    span = event.span
    payload = ""
    if event.attributes:
        kept = {masks.text(key): masks.label(key, value) for key, value in event.attributes.items()}
        payload = json.dumps({key: _plain(value) for key, value in kept.items()}, ensure_ascii=False)
    columns: dict[str, Column] = {
        "time": (clock.wall_at(event.mono_ns),),
        "kind": (EventKind.SPAN_EVENT.value,),
        "name": (masks.text(event.name),),
        "severity": (Severity.INFO.code,),
        "payload": (payload,),
        "span_id": (span.id,),
        "trace_hi": (span.trace_hi,),
        "trace_lo": (span.trace_lo,),
    }
    if span.at_step is not None:
        columns["step"] = (span.at_step,)
    return Block(event.section, 1, columns)


def _plain(value: "Label") -> "Label":
    """As JSON has it: NaN and infinities as text; a whole number beyond 64 bits as a double, as a span's labels are."""
    if isinstance(value, str) or (isinstance(value, int) and -MAX_INT64 <= value <= MAX_INT64):
        return value
    number = number_of(value)
    if number is None or math.isfinite(number):
        return number or 0.0
    return number_name(number)
