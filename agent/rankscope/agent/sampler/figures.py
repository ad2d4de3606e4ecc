"""What a sample is made of, and how counters that only grow become figures a second."""

from typing import NamedTuple


class Figure(NamedTuple):
    """One figure.

    Attributes:
        name: What it is: `cpu.busy`.
        value: In the unit of its name.
        device: What it is of: `eth0`, `gpu0`, `rank 3`; "": the node.
    """

    name: str
    value: float
    device: str = ""


class Counters:
    """The counters of the sample before, to be compared with those of this one.

    Of a counter that is seen for the first time, or that fell, there is no figure. What a sample does not see is
    forgotten, so that devices and processes that come and go take no memory.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[object, ...], tuple[float, float]] = {}
        self._now: dict[tuple[object, ...], tuple[float, float]] = {}
        self._at_s = 0.0

    def begin(self, at_s: float) -> None:
        """A new sample.

        Args:
            at_s: When, on a clock that only goes forward, in s.
        """
        self._before, self._now, self._at_s = self._now, {}, at_s

    def rate(self, total: float, *key: object) -> float | None:
        """How much a counter grew a second since the sample before; None: it cannot be told.

        Args:
            total: What it says now.
            key: Which counter, of which device or process.
        """
        self._now[key] = self._at_s, total
        at_s, before = self._before.get(key, (self._at_s, total))
        if self._at_s <= at_s or total < before:
            return None
        return (total - before) / (self._at_s - at_s)
