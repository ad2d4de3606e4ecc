"""How far ahead of the store a backlog may be sent, so that live data never queues behind it for long.

The gateway takes batches faster than the store inserts them, and each of the broker's streams is read in order: what
a backlog puts into one is in front of whatever comes later. Measured: 16,000 live rows/s beside a backlog that only
the gateway's credit bounded were up to 15 s behind. Promises: what is ahead of the store shrinks when its oldest
batch waits longer than `SLOW_S`, and grows while the store follows within `FAST_S`.
"""

import time
from collections import deque
from collections.abc import Callable

FIRST, LEAST, MOST = 16, 8, 128
"""Batches that may be ahead: at first, at least, at most. Full ones hold 2,000 rows."""

FAST_S, SLOW_S = 1.5, 2.0
"""How long a batch is on its way into the store: a little under a second where nothing waits, for groups linger."""


class Pace:
    """The pace of one spool.

    Args:
        monotonic: A clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ahead = float(FIRST)
        self._sent: deque[tuple[int, float]] = deque()
        self._slowed_at = float("-inf")

    @property
    def ahead(self) -> int:
        """Batches that may be ahead of the store now."""
        return int(self._ahead)

    def allows(self, ahead: int) -> bool:
        """Whether a batch may go that is so many numbers above the durable seq."""
        if self._sent and self._monotonic() - self._sent[0][1] > SLOW_S:
            self._slow_down(self._sent[0][1])
        return ahead < self._ahead

    def note_sent(self, seq: int) -> None:
        """A batch went."""
        while self._sent and self._sent[-1][0] >= seq:  # it goes again
            self._sent.pop()
        self._sent.append((seq, self._monotonic()))

    def note_durable(self, durable: int) -> None:
        """The store has everything below `durable`."""
        if not self._sent or self._sent[0][0] >= durable:
            return
        sent_at, passed = self._sent[0][1], 0
        while self._sent and self._sent[0][0] < durable:
            self._sent.popleft()
            passed += 1
        took_s = self._monotonic() - sent_at
        if took_s > SLOW_S:
            self._slow_down(sent_at)
        elif took_s < FAST_S:
            self._ahead = min(float(MOST), self._ahead + passed / 2)

    def _slow_down(self, sent_at: float) -> None:
        # Once for all that was sent before: they wait in one queue.
        if sent_at > self._slowed_at:
            self._slowed_at = self._monotonic()
            self._ahead = max(float(LEAST), self._ahead / 2)
