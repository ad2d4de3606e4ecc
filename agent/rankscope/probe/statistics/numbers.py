"""From what was summed up over a tensor to the numbers of its row, in one place for every way of summing up."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rankscope.probe.rows import Numbers

FLOAT32_MOST = float.fromhex("0x1.ffffffp127")
"""From here on a number is infinite when it is stored as float32."""

FLOAT32_LEAST = float.fromhex("0x1p-150")
"""Up to here a magnitude is 0 when it is stored as float32."""

SQUARES_MOST, SQUARES_LEAST = 1e140, 1e-140
"""Greatest magnitudes between which no sum of squares leaves the range of fp64 or loses bits at its end."""


Read = tuple[Any, ...]
"""What the kernel knows of a tensor: `Numbers` up to `saturated_count`, the fingerprint, the histogram's buckets, and
how many elements are finite."""


class Sums(NamedTuple):
    """What was summed up over a tensor's finite elements, and its other elements counted.

    Attributes:
        finite: Finite elements.
        mean: Of them; as std, l1, l2 and rms.
        low: Least finite element; infinite where there is none.
        high: Greatest.
        least: Least magnitude but 0; infinite where there is none.
        nan: NaN elements; the other counts likewise.
        histogram: Elements per bucket of `log2_hist`.
        fingerprint: Of the bytes; None of a tensor that has not all of its elements in memory.
    """

    finite: float
    mean: float
    std: float
    l1: float
    l2: float
    rms: float
    low: float
    high: float
    least: float
    nan: int
    posinf: int
    neginf: int
    zero: int
    subnormal: int
    saturated: int
    histogram: Sequence[int]
    fingerprint: int | None

    @property
    def absmax(self) -> float:
        """Greatest magnitude of a finite element, never -0.0; minus infinity where there is none."""
        return max(-self.low, self.high) + 0.0


def numbers_of(sums: Sums) -> Numbers:
    """The whole table; without a finite element, counts only.

    A finite number that its column cannot hold is absent, never infinite: `absmax` of 1e200, since the column is
    float32, and `l2` beyond fp64.
    """
    infinite = sums.posinf + sums.neginf
    nonfinite = sums.nan + infinite
    numel = sums.finite + nonfinite
    if not numel:
        return Numbers()
    if not sums.finite:
        return Numbers(
            *(nonfinite, sums.nan, infinite, None, None, sums.posinf, sums.neginf, 0, 0.0),
            subnormal_count=0,
            saturated_count=0,
            fingerprint=sums.fingerprint,
            log2_hist=tuple(sums.histogram),
        )
    made = Numbers(
        nonfinite_count=nonfinite,
        nan_count=sums.nan,
        inf_count=infinite,
        absmax=sums.absmax,
        l2=sums.l2,
        posinf_count=sums.posinf,
        neginf_count=sums.neginf,
        zero_count=sums.zero,
        zero_frac=sums.zero / numel,
        min=sums.low,
        max=sums.high,
        absmin_nonzero=sums.least if sums.least < math.inf else None,
        mean=sums.mean,
        std=sums.std,
        l1=sums.l1,
        rms=sums.rms,
        subnormal_count=sums.subnormal,
        saturated_count=sums.saturated,
        fingerprint=sums.fingerprint,
        log2_hist=tuple(sums.histogram),
    )
    return made if sums.least > FLOAT32_LEAST and sums.absmax < FLOAT32_MOST else _storable(made)


def is_ordinary(read: Read) -> bool:
    """Whether some element is not 0 and every number fits its column; then no square has left its range either."""
    return FLOAT32_LEAST < read[11] <= read[3] < FLOAT32_MOST


def ordinary_numbers(read: Read) -> Numbers:
    """The whole table of an ordinary tensor: by position, which takes a third of the time that names take."""
    return Numbers._make((*read[:18], None, None, read[18], None, read[19:-1]))


def sums_of(read: Read) -> Sums:
    """What the kernel knows of a tensor that is not ordinary, to be looked at more closely."""
    nan, l2, posinf, neginf, zero = read[1], *read[4:8]
    low, high, least, mean, std, l1, rms, subnormal, saturated, fingerprint = read[9:19]
    return Sums(
        *(read[-1], mean, std, l1, l2, rms, low, high, least, nan, posinf, neginf, zero, subnormal, saturated),
        read[19:-1],
        fingerprint,
    )


def _storable(numbers: Numbers) -> Numbers:
    """Without the finite numbers that would be stored as infinite, or a magnitude as 0."""
    beyond = [
        name
        for name in ("absmax", "min", "max", "mean", "std", "rms", "absmin_nonzero")
        if abs(getattr(numbers, name) or 0.0) >= FLOAT32_MOST
    ]
    beyond += [name for name in ("l1", "l2") if math.isinf(getattr(numbers, name))]
    if (numbers.absmin_nonzero or 1.0) <= FLOAT32_LEAST:
        beyond.append("absmin_nonzero")
    return numbers._replace(**dict.fromkeys(beyond, None))


def norms_of(sums: Sums) -> Numbers:
    """What level 1 keeps of a table: the norm, the greatest magnitude, and what is not finite."""
    infinite = sums.posinf + sums.neginf
    if not sums.finite:
        return Numbers(sums.nan + infinite, sums.nan, infinite) if sums.nan + infinite else Numbers()
    absmax = sums.absmax
    return Numbers(
        sums.nan + infinite,
        sums.nan,
        infinite,
        absmax if absmax < FLOAT32_MOST else None,
        sums.l2 if sums.l2 < math.inf else None,
    )


def leaves_range(sums: Sums) -> bool:
    """Whether squares have left the range of fp64, so that mean, deviation and norms have to be summed up scaled."""
    absmax = sums.absmax
    return absmax > SQUARES_MOST or 0.0 < absmax < SQUARES_LEAST
