"""What is read out of a module's name, whatever its sender called it."""

import time

from rankscope_query_api.layers import is_block

LONGEST = 2_048
"""Bytes of the longest path that an agent sends."""


def taken(*names: str) -> float:
    """Seconds of this thread's processor to look at modules of these names."""
    started = time.thread_time()
    for name in names:
        is_block({"path": name, "layer_index": 3, "parent": "layers"}, {"layers": None})
    return time.thread_time() - started


def test_a_long_name_of_zeros_costs_no_more_than_a_thousand_short_ones() -> None:
    long = "0" * (LONGEST - 1) + "x"

    assert any(taken(long) < taken(*["layers.3"] * 1_000) for _ in range(3))
