"""How one statistic of many tensors, and of many ranks' parts of a tensor, becomes one: pure functions.

Counts and sums of magnitudes add up, norms do by their squares, extremes are the greatest or least, means are
weighted by elements. A ratio of norms is of two norms that its row does not tell, so it cannot be put together:
the middle one is shown beside the least and the greatest, and the answer says so.

The parts of a tensor that is sharded over ranks make up the whole. Where the ranks hold more elements together than
the tensor has, it is there several times (sharded within nodes, copied over them): sums are divided by how often.
Where they hold fewer, or no whole multiple, parts are missing, and the value is that of the parts that are there.
A tensor that is not sharded is a copy, or the rank's own; of several ranks' values the middle one is shown. A partial
tensor is an addend of one that nobody has summed yet: its value is never that of the whole.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, zip_longest

from rankscope_proto.log2_histogram import BUCKETS, quantile
from rankscope_query_api.values import Record


class Combining(StrEnum):
    """How values of parts become that of the whole."""

    SUM = "sum"
    ROOT_OF_SQUARES = "root_of_squares"
    GREATEST = "greatest"
    LEAST = "least"
    MEAN = "mean"
    MEAN_SQUARE = "mean_square"
    DEVIATION = "deviation"
    HISTOGRAM = "histogram"
    NONE = "none"


_COUNTS = (
    *("nonfinite_count", "nan_count", "posinf_count", "neginf_count", "inf_count", "zero_count"),
    *("subnormal_count", "saturated_count", "l1"),
)

COMBINING: Mapping[str, Combining] = {
    **dict.fromkeys(_COUNTS, Combining.SUM),
    "l2": Combining.ROOT_OF_SQUARES,
    "max": Combining.GREATEST,
    "absmax": Combining.GREATEST,
    "min": Combining.LEAST,
    "absmin_nonzero": Combining.LEAST,
    "mean": Combining.MEAN,
    "zero_frac": Combining.MEAN,
    "rms": Combining.MEAN_SQUARE,
    "std": Combining.DEVIATION,
    "update_ratio": Combining.NONE,
    "grad_to_weight": Combining.NONE,
}
"""How each statistic that is a column is put together."""

QUANTILES: Mapping[str, float] = {f"p{share:02}": share / 100 for share in (1, 5, 25, 50, 75, 95, 99)}
"""Statistics that are made of `log2_hist`: quantiles of the magnitudes of finite elements."""

STATISTICS = (*COMBINING, *QUANTILES)
"""Every statistic that a profile can be of."""


def combining_of(statistic: str) -> Combining:
    """How a statistic is put together."""
    return Combining.HISTOGRAM if statistic in QUANTILES else COMBINING[statistic]


@dataclass(frozen=True, slots=True)
class Part:
    """A statistic of some elements.

    Attributes:
        value: It; of a histogram the zeros, which are in no bucket.
        low: The least of what it was made of and could not be put together.
        high: The greatest.
        numel: How many elements.
        mean: Their mean, for deviations.
        ranks: Ranks with a row of it.
        counts: The histogram, if it is one.
        is_whole: Whether no part is missing, and it could be put together.
    """

    value: float
    low: float
    high: float
    numel: float
    mean: float
    ranks: int
    counts: Sequence[float]
    is_whole: bool


def of_tensor(row: Record, how: Combining) -> Part:
    """One tensor at one step, from the sums over its ranks.

    Args:
        row: As the reader of profiles answers it.
        how: How the statistic is put together.
    """
    held, whole = row["held"], max(row["numel_global"], 1)
    known = {"low": row["low"], "high": row["high"], "ranks": row["ranks"], "mean": row["mean"]}
    is_summed = not row["is_partial"]
    if not row["is_sharded"]:
        copies = max(row["ranks"], 1)
        counts = [count / copies for count in row["counts"]]
        return Part(row["middle"], numel=held / copies, counts=counts, is_whole=is_summed, **known)
    copies = held / whole if held >= whole else 1.0
    is_whole = held > 0 and held % whole == 0 and is_summed and how is not Combining.NONE
    counts = [count / copies for count in row["counts"]]
    value = _COMBINED[how](_Sums.of(row, copies), row["middle"])
    return Part(value, numel=held / copies, counts=counts, is_whole=is_whole, **known)


@dataclass(frozen=True, slots=True)
class _Sums:
    """What every combination is made of."""

    values: float
    squares: float
    weighted: float
    rms_squares: float
    weighted_squares: float
    means: float
    numel: float
    low: float
    high: float

    @classmethod
    def of(cls, row: Record, copies: float) -> "_Sums":
        """The sums over ranks, each copy counted once."""
        names = ("values", "squares", "weighted", "rms_squares", "weighted_squares", "means", "held")
        return cls(*(row[name] / copies for name in names), low=row["low"], high=row["high"])

    @classmethod
    def over(cls, parts: Sequence[Part]) -> "_Sums":
        """The sums over parts; beyond any number, infinity: `math.fsum` and `**` raise there."""
        return cls(
            sum(one.value for one in parts),
            sum(one.value * one.value for one in parts),
            sum(one.value * one.numel for one in parts),
            sum(one.value * one.value * one.numel for one in parts),
            sum((one.value * one.value + one.mean * one.mean) * one.numel for one in parts),
            sum(one.mean * one.numel for one in parts),
            sum(one.numel for one in parts),
            min(one.low for one in parts),
            max(one.high for one in parts),
        )

    def deviation(self) -> float:
        """Of all, from means and deviations of parts."""
        mean = self.means / self.numel
        return math.sqrt(max(self.weighted_squares / self.numel - mean * mean, 0.0))

    def root_mean_square(self) -> float:
        """Of all, from those of parts."""
        return math.sqrt(self.rms_squares / self.numel)


_COMBINED: Mapping[Combining, Callable[[_Sums, float], float]] = {
    Combining.SUM: lambda sums, _: sums.values,
    Combining.ROOT_OF_SQUARES: lambda sums, _: math.sqrt(sums.squares),
    Combining.GREATEST: lambda sums, _: sums.high,
    Combining.LEAST: lambda sums, _: sums.low,
    Combining.MEAN: lambda sums, middle: sums.weighted / sums.numel if sums.numel else middle,
    Combining.MEAN_SQUARE: lambda sums, middle: sums.root_mean_square() if sums.numel else middle,
    Combining.DEVIATION: lambda sums, middle: sums.deviation() if sums.numel else middle,
    Combining.HISTOGRAM: lambda sums, _: sums.values,
    Combining.NONE: lambda _, middle: middle,
}


def combined(parts: Sequence[Part], statistic: str) -> Part:
    """Several tensors as one.

    Args:
        parts: At least one.
        statistic: Which statistic their values are.
    """
    how = combining_of(statistic)
    counts = [sum(column) for column in islice(zip_longest(*(one.counts for one in parts), fillvalue=0.0), BUCKETS)]
    sums = _Sums.over(parts)
    value = parts[0].value if len(parts) == 1 else _COMBINED[how](sums, middle([one.value for one in parts]))
    if how is Combining.HISTOGRAM:
        found = quantile([round(count) for count in counts], round(value), share=QUANTILES[statistic])
        value = math.nan if found is None else found
    is_whole = all(one.is_whole for one in parts) and (how is not Combining.NONE or len(parts) == 1)
    ranks = max(one.ranks for one in parts)
    mean = sums.means / sums.numel if sums.numel else 0.0
    return Part(value, sums.low, sums.high, sums.numel, mean, ranks, counts, is_whole)


def middle(values: Sequence[float]) -> float:
    """The middle value, the lower of two; NaN counts as greatest."""
    ordered = sorted(values, key=lambda value: (math.isnan(value), value))
    return ordered[(len(ordered) - 1) // 2]


def over_steps(parts: Sequence[Part]) -> Part:
    """One layer over a range of steps: the middle one, and the least and greatest."""
    values = [one.value for one in parts]
    at = values.index(middle(values)) if not math.isnan(middle(values)) else 0
    found = parts[at]
    low, high = min(values), max(values)
    is_whole = all(one.is_whole for one in parts)
    return Part(found.value, low, high, found.numel, found.mean, found.ranks, found.counts, is_whole)
