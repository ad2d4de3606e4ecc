"""What the buckets of `log2_hist` are, and quantiles from them; one definition for whoever counts and whoever reads.

Bucket i counts magnitudes in [2^(i-30), 2^(i-29)), the first also what is smaller, the last also what is
greater; zeros and non-finite elements are in none. Histograms of parts of a tensor add up.
"""

from collections.abc import Sequence

BUCKETS = 40
LOWEST = -30
"""Exponent of the lower bound of the first bucket."""


def quantile(counts: Sequence[float], share: float) -> float | None:
    """The magnitude below which a share of the finite elements that are not 0 lies.

    Within a bucket the logarithms of the magnitudes are taken as evenly spread, so that the result is within a factor
    of 2 of the true one, and mostly much nearer.

    Args:
        counts: Elements per bucket.
        share: From 0 to 1.

    Returns:
        The magnitude; None where nothing was counted.
    """
    total = sum(counts)
    if not total:
        return None
    wanted, below = share * total, 0.0
    for place, count in enumerate(counts):
        if count and below + count >= wanted:
            return 2.0 ** (LOWEST + place + max(wanted - below, 0.0) / count)
        below += count
    return 2.0 ** (LOWEST + len(counts))
