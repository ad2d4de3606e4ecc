"""Quantiles of magnitudes from `log2_hist`, by the one rule that agent and query service share.

Histograms of ranks and steps are added bucket by bucket; a quantile of the sum is then that of all their elements.
"""

from collections.abc import Sequence

BUCKETS = 40
LOWEST = -30
"""Bucket i counts finite elements with floor(log2(magnitude)) = i + LOWEST, its ends open; zeros are none of them."""


def quantile(buckets: Sequence[int], zeros: int, *, share: float) -> float | None:
    """The magnitude that a share of the finite elements do not exceed, right to its power of two.

    Inside a bucket magnitudes are taken to be spread evenly over their logarithm.

    Args:
        buckets: `log2_hist`, or several of them added; counts beyond its last bucket are taken to be in that.
        zeros: `zero_count` of the same elements.
        share: 0 to 1.

    Returns:
        0 where zeros alone make up the share; None of no elements.
    """
    total = zeros + sum(buckets)
    if not total:
        return None
    rank = share * total
    if rank <= zeros and zeros:
        return 0.0
    below = float(zeros)
    for index, amount in enumerate(buckets):
        if amount and rank <= below + amount:
            return 2.0 ** (min(index, BUCKETS - 1) + LOWEST + max(0.0, rank - below) / amount)
        below += amount
    return 2.0 ** (BUCKETS + LOWEST)
