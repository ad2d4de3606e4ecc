"""Identifiers as an input.

The SDK draws from a generator of its own: the global one belongs to the training, whose numbers
must be the same with and without us.
"""

import os
import random
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
    """Random identifiers, seeded from the system."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = random.Random(os.urandom(32)).getrandbits

    def span_id(self) -> int:
        """A new span id: 1 to 2**64 - 1."""
        return self._bits(64) or 1

    def trace_id(self) -> int:
        """A new trace id: 1 to 2**128 - 1."""
        return self._bits(128) or 1

    def entropy(self, length: int) -> bytes:
        """`length` random bytes, for ids that must differ between machines."""
        return os.urandom(length)


if TYPE_CHECKING:
    _conforms: Ids = RandomIds()
