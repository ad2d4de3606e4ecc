"""The bounded place where training leaves rows for the sealing thread.

Promises: an append never waits for I/O; when the ring is full, of rows or of text, the newest rows are
dropped and counted; every row that was offered is either drained once or counted as dropped once, under any
number of threads.
"""

import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankscope._block import Block
    from rankscope._kept_values import KeptValues
    from rankscope._metric_rows import MetricRows
    from rankscope._span import Span
    from rankscope._span_events import SpanEvent

    Item = Span | SpanEvent | MetricRows | KeptValues | Block

WAKE_ROWS = 2_000
"""Rows that wait before the sealing thread is woken: a full batch."""

WAKE_TEXT = 2 * 1024 * 1024
"""Bytes of long text that wait before it is woken, and that it takes at once."""

HEAVY = "captures"
"""The section whose items are taken at once: each may be of many MiB, and little more of them may wait."""

CAPACITY_TEXT = 16 * 1024 * 1024
"""Bytes of long text kept at most: half of the SDK's 32 MiB, beside the batches that wait for room."""


class Ring:
    """A bounded queue of finished spans, log calls and blocks.

    Args:
        capacity_rows: Rows kept at most; more are dropped and counted.
        capacity_text: Bytes of long text kept at most, likewise; short text is covered by the rows.

    Attributes:
        items: What waits. A span without long text may be appended to it without asking as long as fewer than
            `quiet_items` wait: a call that takes the lock costs a tenth of a span.
        quiet_items: Items that may wait before an append has to look whether to wake the thread and whether
            there is room; so where log calls of many values wait, this many rows more than the capacity may.
    """

    __slots__ = (
        "_capacity",
        "_capacity_text",
        "_dropped",
        "_lock",
        "_more_rows",
        "_text",
        "_wake",
        "_woken",
        "items",
        "quiet_items",
    )

    def __init__(self, capacity_rows: int, *, capacity_text: int = CAPACITY_TEXT) -> None:
        self._capacity = capacity_rows
        self._capacity_text = capacity_text
        self._text = 0
        self.items: deque[Item] = deque()
        self.quiet_items = min(WAKE_ROWS - 1, capacity_rows)
        self._more_rows = 0
        self._dropped: dict[str, int] = {}
        # Re-entrant: a signal handler or a finaliser may emit while its thread is in here.
        self._lock = threading.RLock()
        # A SimpleQueue for the same reason: an Event's own lock is not re-entrant.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._woken = False

    def append(self, item: "Item") -> bool:
        """Take a finished item; False when there was no room and its rows were counted as dropped."""
        rows, text = item.count, item.text_bytes
        with self._lock:
            waiting = len(self.items) + self._more_rows + rows
            if waiting > self._capacity or (text and self._text + text > self._capacity_text):
                self._dropped[item.section] = self._dropped.get(item.section, 0) + rows
                return False
            self.items.append(item)
            self._more_rows += rows - 1
            if text:
                self._text += text
            is_due = waiting >= WAKE_ROWS or (text and self._text >= WAKE_TEXT) or item.section == HEAVY
            if self._woken or not is_due:
                return True
            self._woken = True
        self._wake.put(None)
        return True

    def drain(self, max_rows: int) -> list["Item"]:
        """Take the oldest items out, until they hold `max_rows` rows or much text, or none is left."""
        taken: list[Item] = []
        rows = text = 0
        with self._lock:
            self._woken = False
            while self.items and rows < max_rows and text < WAKE_TEXT:
                item = self.items.popleft()
                rows += item.count
                text += item.text_bytes
                taken.append(item)
            self._more_rows -= rows - len(taken)
            self._text -= text
        return taken

    def take_dropped(self) -> dict[str, int]:
        """Rows dropped since the last call, by section."""
        with self._lock:
            dropped, self._dropped = self._dropped, {}
        return dropped

    def give_up(self) -> None:
        """Count everything that waits as dropped."""
        with self._lock:
            while self.items:
                item = self.items.popleft()
                self._dropped[item.section] = self._dropped.get(item.section, 0) + item.count
            self._more_rows = self._text = 0

    def rows(self) -> int:
        """Rows waiting."""
        return len(self.items) + self._more_rows

    def wake(self) -> None:
        """End the current or the next `wait`."""
        self._wake.put(None)

    def wait(self, timeout_s: float) -> None:
        """Return when a batch's worth of rows waits, when woken, or after `timeout_s`."""
        try:
            self._wake.get(timeout=max(0.0, timeout_s))
            while True:
                self._wake.get_nowait()
        except Empty:
            return
