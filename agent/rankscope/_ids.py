"""Identifiers as an input.

The SDK draws from a generator of its own: the global one belongs to the training, whose numbers
must be the same with and without us.
"""

import os
import random
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol


class Ids(Protocol):
    """Where identifiers come from; `rankscope.testing.CountingIds` is the one for tests."""

    def span_id(self) -> int:
        """A new span id: 1 to 2**64 - 1."""
        ...

    def trace_id(self) -> int:
        """A new trace id: 1 to 2**128 - 1."""
        ...

    def entropy(self, length: int) -> bytes:
        """`length` random bytes, for ids that must differ between machines."""
        ...


class RandomIds:
    """Identifiers from a generator that is seeded from the system.

    Both kinds are drawn by builtins alone, without a method around them: a third of the time, twice a span.

    Attributes:
        span_id: A new span id: the next number from a random start, so that a process never repeats one. Two
            processes of a trace meet as seldom as random ids would.
        trace_id: A new trace id: 128 random bits, as samplers of other systems expect (zero comes never: 2**-128).
    """

    __slots__ = ("span_id", "trace_id")

    def __init__(self) -> None:
        bits = random.Random(os.urandom(32)).getrandbits
        self.span_id = count(bits(63) + 1).__next__
        self.trace_id = partial(bits, 128)

    def entropy(self, length: int) -> bytes:
        """`length` random bytes, for ids that must differ between machines."""
        return os.urandom(length)


if TYPE_CHECKING:
    _conforms: Ids = RandomIds()
