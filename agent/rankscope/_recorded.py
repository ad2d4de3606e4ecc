"""Recorded spans as a test asks about them: by name, with their children, as a drawing.

A test of a program that records spans wants one line per claim and a message that shows what was recorded
instead. Everything here works on rows that a `MemoryExporter` kept; nothing is waited for.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import dedent
from typing import cast

from rankscope_proto.names import Phase, SpanKind, SpanStatus

Row = Mapping[str, object]
"""A row of the section `spans` or `events`, as the table will hold it."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSpan:
    """A finished span, as it was recorded.

    Attributes:
        name: What it is called.
        kind: A word of SpanKind.
        status: ok, error, interrupted or cancelled.
        span_id: 16 hex digits.
        trace_id: 32 hex digits.
        parent_span_id: 16 hex digits; "": a root.
        step: Training step or episode; None: none.
        rank: Rank the program named for it; None: the process's own.
        start_ns: Wall clock at the start, ns since the epoch.
        duration_ns: From the monotonic clock.
        attributes: Labels, texts and numbers.
        metrics: Numbers of the span.
        inputs: What was captured of the inputs, parsed; None: nothing. A cut preview is its text.
        outputs: The same of the output.
        error_type: Class of the exception that ended it; "": none.
        error: What was captured of its message; "": nothing.
        thread_id: Session or turn; by default its trace, by its id.
        rollout_id: Rollout or episode of the application; "": none.
        phase: Part of the training step; "": none.
        links: Linked spans, as (trace id, span id).
        events: Names of its events, in order, each with its attributes.
        children: Its children, by start.
    """

    name: str
    kind: str
    status: str
    span_id: str
    trace_id: str
    parent_span_id: str
    step: int | None
    rank: int | None
    start_ns: int
    duration_ns: int
    attributes: Mapping[str, str | float]
    metrics: Mapping[str, float]
    inputs: object
    outputs: object
    error_type: str
    error: str
    thread_id: str
    rollout_id: str
    phase: str
    links: Sequence[tuple[str, str]]
    events: Sequence[tuple[str, Mapping[str, object]]]
    children: "list[RecordedSpan]" = field(default_factory=list["RecordedSpan"])


class RecordedSpans(Sequence[RecordedSpan]):
    """All spans of an exporter, by start.

    Args:
        spans: Rows of the section `spans`.
        events: Rows of the section `events`.
    """

    def __init__(self, spans: Sequence[Row], events: Sequence[Row]) -> None:
        told = _events_by_span(events)
        ordered = sorted(spans, key=lambda row: (cast("int", row["start"]), cast("int", row["span_id"])))
        self._spans = [_span(row, told) for row in ordered]
        by_id = {(span.trace_id, span.span_id): span for span in self._spans}
        self.roots: list[RecordedSpan] = []
        for span in self._spans:
            parent = by_id.get((span.trace_id, span.parent_span_id))
            (self.roots if parent is None else parent.children).append(span)

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: int) -> RecordedSpan:  # pyright: ignore[reportIncompatibleMethodOverride]  # no slices
        return self._spans[index]

    def named(self, name: str) -> list[RecordedSpan]:
        """Every span of that name, by start."""
        return [span for span in self._spans if span.name == name]

    def one(self, name: str) -> RecordedSpan:
        """The only span of that name.

        Raises:
            AssertionError: there is none, or there are several; shows what was recorded.
        """
        found = self.named(name)
        if len(found) != 1:
            raise AssertionError(f"{len(found)} spans are called {name!r}; recorded were:\n{self.drawn()}")
        return found[0]

    def drawn(self) -> str:
        """The trees as text: a name a line, two blanks a level, siblings by start."""
        return "\n".join("  " * depth + span.name for span, depth in self._walk())

    def assert_tree(self, expected: str) -> None:
        """Check that the trees are as drawn; the drawing's own indentation does not matter.

        Raises:
            AssertionError: they are not; shows both.
        """
        wanted = dedent(expected).strip("\n").rstrip()
        if self.drawn() != wanted:
            raise AssertionError(f"recorded:\n{self.drawn()}\n\nexpected:\n{wanted}")

    def counts(self) -> Counter[str]:
        """How many spans there are of each name."""
        return Counter(span.name for span in self._spans)

    def _walk(self) -> Iterator[tuple[RecordedSpan, int]]:
        stack = [(root, 0) for root in reversed(self.roots)]
        while stack:
            span, depth = stack.pop()
            yield span, depth
            stack.extend((child, depth + 1) for child in reversed(span.children))


_Told = Mapping[tuple[str, str], Sequence[tuple[str, Mapping[str, object]]]]
"""Name and attributes of each span's events, by (trace id, span id)."""


def _events_by_span(events: Sequence[Row]) -> _Told:
    told: defaultdict[tuple[str, str], list[tuple[str, Mapping[str, object]]]] = defaultdict(list)
    for row in events:
        if row["kind"] == "span_event":
            payload = cast("str", row["payload"])
            told[_trace_id(row), f"{row['span_id']:016x}"].append((str(row["name"]), json.loads(payload or "{}")))
    return told


def _span(row: Row, told: _Told) -> RecordedSpan:
    trace_id, span_id = _trace_id(row), f"{row['span_id']:016x}"
    parent = cast("int", row["parent_span_id"])
    return RecordedSpan(
        name=str(row["name"]),
        kind=SpanKind.of(cast("int", row["kind"])),
        status=SpanStatus.of(cast("int", row["status"])),
        span_id=span_id,
        trace_id=trace_id,
        parent_span_id=f"{parent:016x}" if parent else "",
        step=cast("int | None", row["step"]),
        rank=cast("int | None", row["stated_rank"]),
        start_ns=cast("int", row["start"]),
        duration_ns=cast("int", row["duration"]),
        attributes={
            **cast("Mapping[str, str]", row["attributes"]),
            **cast("Mapping[str, float]", row["numbers"]),
        },
        metrics=cast("Mapping[str, float]", row["metrics"]),
        inputs=_parsed(row["inputs"]),
        outputs=_parsed(row["outputs"]),
        error_type=str(row["error_type"]),
        error=str(row["error_preview"]),
        thread_id=str(row["thread_id"]) or trace_id,
        rollout_id=str(row["rollout_id"]),
        phase=Phase.of(cast("int", row["phase"])),
        links=_links(row),
        events=told.get((trace_id, span_id), ()),
    )


def _links(row: Row) -> list[tuple[str, str]]:
    halves = [cast("Sequence[int]", row[name]) for name in ("link_trace_hi", "link_trace_lo", "link_span_id")]
    return [(f"{hi:016x}{lo:016x}", f"{span:016x}") for hi, lo, span in zip(*halves, strict=True)]


def _trace_id(row: Row) -> str:
    return f"{row['trace_hi']:016x}{row['trace_lo']:016x}"


def _parsed(preview: object) -> object:
    text = cast("str", preview)
    if not text:
        return None
    try:
        return cast("object", json.loads(text))
    except ValueError:
        return text
