"""How far ahead of the store a backlog may be sent, so that live data never queues behind it for long.

The gateway takes batches faster than the store inserts them, and each of the broker's streams is read in order: what
a backlog puts into one is in front of whatever comes later. Measured: 16,000 live rows/s beside a backlog that only
the gateway's credit bounded were up to 15 s behind. Promises: what is ahead of the store shrinks when its oldest
batch waits longer than `SLOW_S`, and grows while the store follows within `FAST_S`; it is shared by all backlogs
that an agent sends to one gateway, however many at a time, and the next one goes on where the last one stopped.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

FIRST, LEAST, MOST = 32, 16, 256
"""Batches that may be ahead, of all backlogs: at first, at least, at most. Full ones hold 2,000 rows."""

FAST_S, SLOW_S = 1.5, 2.0
"""How long a batch is on its way into the store: a little under a second where nothing waits, for groups linger."""


class Road:
    """How many batches all backlogs that go to one gateway may have ahead of its store, together.

    Args:
        monotonic: A clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._lock = threading.Lock()
        self._limit = float(FIRST)
        self._ahead: dict[int, int] = {}
        self._slowed_at = float("-inf")

    @property
    def limit(self) -> int:
        """Batches that may be ahead of the store now."""
        return int(self._limit)

    def has_room(self, lane: int, ahead: int) -> bool:
        """Whether one more may go of the backlog in a lane, that has so many ahead."""
        with self._lock:
            return ahead + sum(count for other, count in self._ahead.items() if other != lane) < self._limit

    def note(self, lane: int, ahead: int) -> None:
        """So many of the backlog in a lane are ahead now; 0: it needs no lane any more."""
        with self._lock:
            self._ahead[lane] = ahead
            if not ahead:
                del self._ahead[lane]

    def speed_up(self, batches: int) -> None:
        """The store followed these within `FAST_S`."""
        with self._lock:
            self._limit = min(float(MOST), self._limit + batches / 2)

    def slow_down(self, sent_at: float) -> None:
        """A batch sent then waited for longer than `SLOW_S`."""
        with self._lock:
            # Once for all that was sent before: they wait in one queue.
            if sent_at > self._slowed_at:
                self._slowed_at = self.monotonic()
                self._limit = max(float(LEAST), self._limit / 2)


class Pace:
    """The pace of one spool.

    Args:
        road: Shared with the other backlogs.
    """

    def __init__(self, road: Road) -> None:
        self._road = road
        self._sent: deque[tuple[int, float]] = deque()

    def allows(self, ahead: int) -> bool:
        """Whether a batch may go that is so many numbers above the durable seq."""
        if self._sent and self._road.monotonic() - self._sent[0][1] > SLOW_S:
            self._road.slow_down(self._sent[0][1])
        return self._road.has_room(id(self), ahead)

    def note_sent(self, seq: int) -> None:
        """A batch went."""
        while self._sent and self._sent[-1][0] >= seq:  # it goes again
            self._sent.pop()
        self._sent.append((seq, self._road.monotonic()))
        self._road.note(id(self), len(self._sent))

    def note_durable(self, durable: int) -> None:
        """The store has everything below `durable`."""
        if not self._sent or self._sent[0][0] >= durable:
            return
        sent_at, passed = self._sent[0][1], 0
        while self._sent and self._sent[0][0] < durable:
            self._sent.popleft()
            passed += 1
        self._road.note(id(self), len(self._sent))
        took_s = self._road.monotonic() - sent_at
        if took_s > SLOW_S:
            self._road.slow_down(sent_at)
        elif took_s < FAST_S:
            self._road.speed_up(passed)

    def leave(self) -> None:
        """Nothing is on the way any more, as far as is known: others need not wait for it."""
        self._sent.clear()
        self._road.note(id(self), 0)
