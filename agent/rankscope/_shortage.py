"""What is given up, and in which order, where batches find no room.

Promises: nothing is given up silently, as every row is counted by whoever asks here; run state, events
and gaps are the last to go; and training never waits for room. Two degrees: while the room fills, whole
classes are thinned; when it stayed full for `PATIENCE_S`, what waits is given up, and only what a
reader must know still goes out, at a pace that the reserve holds for long.
"""

import time
from typing import TYPE_CHECKING

from rankscope._endings import ERROR
from rankscope._span import Span
from rankscope._span_events import SpanEvent

if TYPE_CHECKING:
    from rankscope._ring import Item

THIN_FROM = {
    "captures": 0.70,
    "system_stats": 0.70,
    "collectives": 0.75,
    "tensor_stats": 0.80,
    "spans": 0.90,
    "scalars": 0.95,
}
"""How full the room is when a section's rows are no longer kept: what is largest and means least first."""

LAST_TO_GO = frozenset({"events", "gaps", "run_info"})
"""Sections that go out even where there is no room, from the reserve."""

PATIENCE_S = 5.0
"""How long a batch waits for room before it is given up."""

PAUSE_S = 5.0
LONG_PAUSE_S = 60.0
LONG_AFTER_S = 60.0
"""Pauses between urgent batches: the reserve is 1 MiB, and a batch of a few gap rows takes about 1 KiB."""


class Shortage:
    """How long there has been no room.

    Attributes:
        is_lasting: Whether what waited was given up, and only what must be said goes out.
    """

    def __init__(self) -> None:
        self.is_lasting = False
        self._since: float | None = None
        self._urgent_at = 0.0

    def note_taken(self) -> None:
        """A batch found room."""
        self._since = None
        self.is_lasting = False

    def note_refused(self) -> None:
        """A batch found none."""
        self._since = time.monotonic() if self._since is None else self._since

    def note_urgent(self) -> None:
        """A batch went into the reserve: the next one waits a while."""
        now = time.monotonic()
        is_long = self._since is not None and now - self._since >= LONG_AFTER_S
        self._urgent_at = now + (LONG_PAUSE_S if is_long else PAUSE_S)

    @property
    def is_beyond_patience(self) -> bool:
        """Whether what waits is to be given up now."""
        return not self.is_lasting and self._since is not None and time.monotonic() - self._since >= PATIENCE_S

    @property
    def may_use_reserve(self) -> bool:
        """Whether a batch may go into the reserve now."""
        return self.is_lasting and time.monotonic() >= self._urgent_at

    def begin(self) -> None:
        """What waited is given up; the next batch may use the reserve at once."""
        self._since = time.monotonic()
        self._urgent_at = 0.0
        self.is_lasting = True

    def keeps(self, item: "Item", fullness: float) -> bool:
        """Whether an item is to be sealed.

        Args:
            item: A span, a log call or a block of rows.
            fullness: How much of the room is in use, 0.0 to 1.0.
        """
        section = Span.section if isinstance(item, SpanEvent) else item.section  # a program may write any number
        if section in LAST_TO_GO:
            return True
        if self.is_lasting:
            return False
        if fullness < THIN_FROM.get(section, 2.0):
            return True
        return isinstance(item, Span) and item.status == ERROR
