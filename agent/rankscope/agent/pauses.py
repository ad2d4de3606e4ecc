"""How long a sender waits after a failure: the one place where that is decided.

Pauses double from 0.1 s to 2 s, with jitter, so that a gateway that is back has everybody within 3 s and nobody at
once; the server's own delay is waited out; a denial lasts until somebody changes a key, so it is tried rarely.
"""

import random
import time

from rankscope._connection import Failure, Kind

FIRST_S = 0.1
LONGEST_S = 2.0
DENIED_S = 5.0


class Pauses:
    """When the next attempt is due.

    Attributes:
        not_before: Monotonic second of it.
        denials: Denials in a row: which key to try next.
    """

    def __init__(self) -> None:
        self.not_before = 0.0
        self.denials = 0
        self._next_s = FIRST_S
        self._random = random.Random()  # the global generator is the training's

    def left_s(self) -> float:
        """Seconds until the next attempt; at most 0: it is due."""
        return self.not_before - time.monotonic()

    def take_success(self, retry_after_ms: int) -> None:
        """The gateway answered a batch, and asks for so long a pause."""
        self._next_s = FIRST_S
        self.denials = 0
        if retry_after_ms:
            self.not_before = time.monotonic() + retry_after_ms / 1e3

    def take_failure(self, failure: Failure | None, *, keys: int) -> None:
        """An attempt ended.

        Args:
            failure: Why; None: in order.
            keys: Number of keys there are to try.
        """
        pause, self._next_s = self._next_s, min(LONGEST_S, 2 * self._next_s)
        pause *= self._random.uniform(0.5, 1.0)
        if failure is not None and failure.kind is Kind.DENIED:
            self.denials += 1
            pause = pause if self.denials % max(1, keys) else DENIED_S
        asked_s = (failure.retry_after_s if failure else None) or 0.0
        self.not_before = time.monotonic() + max(pause, asked_s)
