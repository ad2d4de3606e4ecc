"""The bounded place where training leaves rows for the sealing thread.

Promises: an append never waits for I/O; when the ring is full the newest rows are dropped and
counted; every row that was offered is either drained once or counted as dropped once, under any
number of threads.
"""

import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankscope._block import Block
    from rankscope._span import Span

WAKE_ROWS = 2_000
"""Rows that wait before the sealing thread is woken: a full batch."""


class Ring:
    """A bounded queue of finished spans and blocks.

    Args:
        capacity_rows: Rows kept at most; more are dropped and counted.
    """

    __slots__ = ("_capacity", "_dropped", "_items", "_lock", "_rows", "_wake", "_woken")

    def __init__(self, capacity_rows: int) -> None:
        self._capacity = capacity_rows
        self._items: deque[Span | Block] = deque()
        self._rows = 0
        self._dropped: dict[str, int] = {}
        # Re-entrant: a signal handler or a finaliser may emit while its thread is in here.
        self._lock = threading.RLock()
        # A SimpleQueue for the same reason: an Event's own lock is not re-entrant.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._woken = False

    def append(self, item: "Span | Block") -> bool:
        """Take a finished item; False when there was no room and its rows were counted as dropped."""
        rows = item.count
        with self._lock:
            if self._rows + rows > self._capacity:
                self._dropped[item.section] = self._dropped.get(item.section, 0) + rows
                return False
            self._items.append(item)
            self._rows += rows
            if self._rows < WAKE_ROWS or self._woken:
                return True
            self._woken = True
        self._wake.put(None)
        return True

    def drain(self, max_rows: int) -> list["Span | Block"]:
        """Take the oldest items out, until they hold `max_rows` rows or more, or none is left."""
        taken: list[Span | Block] = []
        rows = 0
        with self._lock:
            self._woken = False
            while self._items and rows < max_rows:
                item = self._items.popleft()
                rows += item.count
                taken.append(item)
            self._rows -= rows
        return taken

    def take_dropped(self) -> dict[str, int]:
        """Rows dropped since the last call, by section."""
        with self._lock:
            dropped, self._dropped = self._dropped, {}
        return dropped

    def rows(self) -> int:
        """Rows waiting."""
        return self._rows

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
