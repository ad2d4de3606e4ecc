"""One value of many: numbers without end, addends that nobody summed, histograms of odd lengths."""

import math
from typing import Any

import pytest

from rankscope_query_api.profiles import COMBINING, Combining, Part, combined, of_tensor

_VALUES = ("values", "squares", "weighted", "rms_squares", "weighted_squares", "means", "mean", "low", "high", "middle")
SUMS = dict.fromkeys(_VALUES, 1.0)
"""Of a statistic that is 1 on every rank."""


def part(value: float, *counts: float) -> Part:
    """A statistic of four elements."""
    return Part(value, value, value, 4, value, 1, counts, True)


@pytest.mark.parametrize("statistic", COMBINING)
@pytest.mark.parametrize("values", [(1e200, 1e200), (1.5e308, 1.5e308), (math.inf, -math.inf), (math.nan, 1.0)])
def test_tensors_that_exploded_are_put_together_all_the_same(statistic: str, values: tuple[float, ...]) -> None:
    found = combined([part(value) for value in values], statistic)

    assert found.numel == 8


def test_norms_beyond_any_number_are_infinite() -> None:
    assert combined([part(1e200), part(1e200)], "l2").value == math.inf


def test_a_histogram_of_another_length_counts_where_it_has_buckets() -> None:
    assert combined([part(0.0, *[0.0] * 30, 4.0), part(0.0, 4.0)], "p75").value == pytest.approx(2**0.5)


@pytest.mark.parametrize("is_sharded", [True, False])
def test_an_addend_that_nobody_summed_is_not_the_whole(is_sharded: bool) -> None:
    row: dict[str, Any] = {**SUMS, "ranks": 2, "held": 8, "numel_global": 8, "is_sharded": is_sharded, "counts": []}

    assert of_tensor({**row, "is_partial": False}, Combining.ROOT_OF_SQUARES).is_whole
    assert not of_tensor({**row, "is_partial": True}, Combining.ROOT_OF_SQUARES).is_whole
