"""From which step on somebody is slow: what judges of stragglers share, whatever tells them that a step was slow."""

from collections.abc import Sequence
from statistics import median

WARM_UP_STEPS = 3
"""Steps at the beginning of a launch that are not judged: allocation and compilation happen in them."""

SIGMA_OF_MAD = 1.4826
"""Standard deviation over the median absolute one, of a normal distribution."""

_TAIL_STEPS = 16
"""Steps at the end from which the size of a loss is guessed before its beginning is known."""


def onset(values: Sequence[float]) -> int | None:
    """Index from which a loss is as large as at the end; None: it is not large there.

    Each step votes: +1 if its loss is more than half of the final size, -1 if not. The votes from the beginning to
    the end add up to most exactly there, whatever a few outliers say.

    Args:
        values: What is lost at each step.
    """
    size = median(values[-_TAIL_STEPS:]) if values else 0.0
    begin: int | None = None
    for _ in range(3):
        if size <= 0:
            return None
        votes = best = 0
        begin = None
        for index in range(len(values) - 1, -1, -1):
            votes += 1 if values[index] > size / 2 else -1
            if votes > best:
                best, begin = votes, index
        if begin is None:
            return None
        size = median(values[begin:])
    return begin
