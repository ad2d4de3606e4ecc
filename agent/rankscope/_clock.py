"""Time as an input.

Durations come from the monotonic clock and starts from one pair of clocks read together, so a
wall clock that is set back while training runs neither bends a duration nor reorders spans.
"""

import time
from typing import TYPE_CHECKING, Protocol


class Clock(Protocol):
    """What the SDK asks of time; `rankscope.testing.ManualClock` is the one for tests."""

    def mono_ns(self) -> int:
        """Monotonic time in ns; its zero means nothing outside this boot."""
        ...

    def wall_at(self, mono_ns: int) -> int:
        """The wall time (ns since the epoch) of a monotonic time of this process."""
        ...

    def wall_ns(self) -> int:
        """The wall time now, in ns since the epoch."""
        ...


class SystemClock:
    """The machine's clocks, tied together when the object is made."""

    __slots__ = ("_offset_ns",)

    mono_ns = staticmethod(time.monotonic_ns)  # the builtin, not a method around it: a span reads it twice

    def __init__(self) -> None:
        before = time.monotonic_ns()
        wall = time.time_ns()
        self._offset_ns = wall - (before + time.monotonic_ns()) // 2

    def wall_at(self, mono_ns: int) -> int:
        """The wall time (ns since the epoch) of a monotonic time of this process."""
        return mono_ns + self._offset_ns

    def wall_ns(self) -> int:
        """The wall time now, in ns since the epoch."""
        return self.mono_ns() + self._offset_ns


if TYPE_CHECKING:
    _conforms: Clock = SystemClock()
