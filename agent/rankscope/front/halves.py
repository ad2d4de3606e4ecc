"""A span of which not every event has come yet: what is known of it, and when it is whole.

Pure. Events may come in any order, in any number of requests: of each field the event with the highest sequence
wins that states it, the start is the earliest stated, and an event that came before changes nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from rankscope.front.events import Event

MOST_RANGES = 256
"""Ranges of sequences that a half remembers: a client that leaves out every other number must not fill the memory."""


@dataclass(slots=True)
class Half:
    """What is known of a span.

    Attributes:
        fields: Name → sequence of the event that stated it, and the value.
        seen: Sequences that came, as ranges, first and last of each, ascending and apart.
        started_ns: The earliest start stated.
        closing: Sequence of the last closing event; None: none came.
        status: How it ended, as that event says; "running" without one.
        closing_start_ns: The start that event states, to which its duration belongs.
        heard_ns: When something was last heard of it, on this machine's clock.
        truncated: Whether an event of it says that a preview was cut.
        masked: Whether anything of it was masked.
    """

    started_ns: int
    heard_ns: int
    fields: dict[str, tuple[int, object]] = field(default_factory=dict[str, tuple[int, object]])
    seen: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    closing: int | None = None
    status: str = "running"
    closing_start_ns: int = 0
    truncated: bool = False
    masked: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether a closing event came."""
        return self.closing is not None

    @property
    def is_whole(self) -> bool:
        """Whether it is closed and every event before its end came: sequences count from 1, or from 0."""
        if self.closing is None or not self.seen:
            return False
        first, last = self.seen[0]
        return first <= 1 and last >= self.closing

    def value(self, name: str) -> object:
        """A field's value; None where no event stated it."""
        return self.fields[name][1] if name in self.fields else None

    def has(self, sequence: int) -> bool:
        """Whether the event of that sequence came."""
        return is_in(self.seen, sequence)

    def add(self, event: Event, *, heard_ns: int) -> bool:
        """Take an event in; whether it was new."""
        if self.has(event.sequence):
            return False
        self.seen = with_one(self.seen, event.sequence)
        self.heard_ns = max(self.heard_ns, heard_ns)
        self.started_ns = min(self.started_ns, event.started_ns)
        if event.is_closing and event.sequence >= (self.closing or 0):
            self.closing, self.status, self.closing_start_ns = event.sequence, event.status, event.started_ns
        for name, value in event.stated.items():
            if name == "truncated":
                self.truncated = self.truncated or bool(value)
            elif name == "masked":
                self.masked = self.masked or bool(value)
            elif name not in self.fields or event.sequence > self.fields[name][0]:
                self.fields[name] = (event.sequence, value)
        return True

    def interrupt(self) -> None:
        """Nothing was heard of it for too long: it ends when it was last heard of."""
        self.closing, self.status = -1, "interrupted"

    @property
    def times(self) -> tuple[int, int]:
        """Start and duration in ns; never negative."""
        start = self.started_ns
        if self.closing == -1:
            return start, max(0, self.heard_ns - start)
        duration, ended = (cast("int | None", self.value(name)) for name in ("duration_ms", "ended_at"))
        if duration is not None:
            # Measured from the start that the closing event knew: another event may know an earlier one.
            return start, duration + self.closing_start_ns - start
        return start, max(0, ended - start) if ended is not None else max(0, self.heard_ns - start)

    def as_text(self) -> str:
        """As it is kept."""
        return json.dumps(
            {
                "started_ns": self.started_ns,
                "heard_ns": self.heard_ns,
                "fields": self.fields,
                "seen": self.seen,
                "closing": self.closing,
                "status": self.status,
                "closing_start_ns": self.closing_start_ns,
                "truncated": self.truncated,
                "masked": self.masked,
            }
        )

    @classmethod
    def of_text(cls, text: str) -> "Half":
        """As it was kept."""
        kept = cast("dict[str, object]", json.loads(text))
        fields = cast("Mapping[str, tuple[int, object]]", kept["fields"])
        closing = kept["closing"]
        return cls(
            int(str(kept["started_ns"])),
            int(str(kept["heard_ns"])),
            {name: (int(sequence), value) for name, (sequence, value) in fields.items()},
            ranges_of(kept["seen"]),
            None if closing is None else int(str(closing)),
            str(kept["status"]),
            int(str(kept["closing_start_ns"])),
            bool(kept["truncated"]),
            bool(kept["masked"]),
        )


def is_in(ranges: Iterable[tuple[int, int]], number: int) -> bool:
    """Whether a number is in one of the ranges, first and last included."""
    return any(first <= number <= last for first, last in ranges)


def with_one(ranges: Sequence[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    """The ranges with one number more, neighbours joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted([*ranges, (number, number)]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    if len(joined) > MOST_RANGES:
        joined[:2] = [(joined[0][0], joined[1][1])]
    return joined


def ranges_of(kept: object) -> list[tuple[int, int]]:
    """Ranges as JSON gave them."""
    return [(int(first), int(last)) for first, last in cast("list[tuple[int, int]]", kept)]
