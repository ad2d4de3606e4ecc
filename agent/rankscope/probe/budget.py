"""What capturing costs, measured in the training itself, and the stride that keeps it within the budget.

Steps that are captured in full are compared with those that are not: the difference of the two medians,
spread over the stride, is the cost. Where every step would be captured, each `SHADOW`-th is left out, to
compare with. The stride is only ever doubled: a rank that must capture less often captures some of the
steps that the others do, so that ranks stay comparable without speaking to each other.
"""

from collections import deque
from statistics import median

SHADOW = 16
"""Of steps that would all be captured, each so-many-th is not."""

KEPT = 64
"""Durations kept of each kind of step: the latest."""

ENOUGH = 8
"""Durations of each kind before anything is concluded from them."""

CERTAIN = 3.0
"""Standard errors that the cost must lie above the budget before the stride grows."""

MOST = 1024
"""Greatest factor on the stride that was asked for."""

_MAD = 1.4826
_MEDIAN = 1.2533
"""Deviation and standard error of a median, of normally distributed values, from their MAD and deviation."""


class Budget:
    """Which steps are captured in full, by their number and by what capturing has cost so far.

    Args:
        every: Stride that was asked for, at least 1.
        share: Most share of step time that capturing may cost; None: no limit.

    Attributes:
        stride: Stride now: `every` times a power of two.
    """

    def __init__(self, every: int, share: float | None) -> None:
        self._every = every
        self._share = share
        self.stride = every
        self._captured: deque[int] = deque(maxlen=KEPT)
        self._others: deque[int] = deque(maxlen=KEPT)

    def captures(self, step: int) -> bool:
        """Whether a step is captured in full; the same for every rank with this stride."""
        if self.stride == 1 and self._share is not None:
            return step % SHADOW != SHADOW - 1
        return step % self.stride == 0

    def took(self, duration_ns: int, *, captured: bool) -> None:
        """Learn how long a step took, and double the stride where capturing costs more than the budget."""
        (self._captured if captured else self._others).append(duration_ns)
        if self._share is None or self.stride >= MOST * self._every or not captured:
            return
        cost, error = self._cost_and_error()
        if cost is not None and cost - CERTAIN * error > self._share:
            self.stride *= 2
            self._captured.clear()

    @property
    def cost(self) -> float | None:
        """Share of step time that capturing costs at this stride, 0 or more; None: too few steps yet."""
        cost, _ = self._cost_and_error()
        return cost

    def _cost_and_error(self) -> tuple[float | None, float]:
        if min(len(self._captured), len(self._others)) < ENOUGH:
            return None, 0.0
        with_it, without = median(self._captured), median(self._others)
        error = (_error(self._captured, with_it) ** 2 + _error(self._others, without) ** 2) ** 0.5
        share = 1 / self.stride if self.stride > 1 else (SHADOW - 1) / SHADOW
        return max(0.0, with_it - without) * share / without, error * share / without


def _error(durations: "deque[int]", middle: float) -> float:
    """Standard error of the median, from the median deviation: a few slow steps do not widen it."""
    deviation = _MAD * median(abs(duration - middle) for duration in durations)
    return _MEDIAN * deviation / len(durations) ** 0.5
