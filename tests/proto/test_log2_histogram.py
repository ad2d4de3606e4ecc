"""Quantiles of a histogram lie in the bucket that the elements' own quantile lies in."""

import math
import random

import pytest

from rankscope_proto.log2_histogram import BUCKETS, LOWEST, quantile


def histogram(values: list[float]) -> list[int]:
    buckets = [0] * BUCKETS
    for value in values:
        buckets[min(BUCKETS - 1, max(0, math.frexp(value)[1] - 1 - LOWEST))] += 1
    return buckets


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.9, 1.0])
def test_a_quantile_is_right_to_its_power_of_two(share: float) -> None:
    chance = random.Random(3)
    values = sorted(abs(chance.gauss(0, 1)) for _ in range(1_000))

    found = quantile(histogram(values), 0, share=share)

    assert found is not None
    assert 0.5 <= found / values[math.ceil(share * 1_000) - 1] <= 2


def test_zeros_are_the_least_magnitudes() -> None:
    assert quantile(histogram([1.0] * 10), 90, share=0.9) == 0.0
    assert quantile(histogram([1.0] * 10), 90, share=0.95) == pytest.approx(math.sqrt(2))


def test_no_element_has_no_quantile() -> None:
    assert quantile([0] * BUCKETS, 0, share=0.5) is None


def test_what_is_beyond_the_last_bucket_is_counted_in_it() -> None:
    assert quantile(histogram([1e9]), 0, share=1.0) == 2.0 ** (BUCKETS + LOWEST)


def test_counts_beyond_the_last_bucket_are_in_it_and_leave_no_range() -> None:
    assert quantile([0] * 2_000 + [8], 0, share=0.5) == quantile([0] * (BUCKETS - 1) + [8], 0, share=0.5)
