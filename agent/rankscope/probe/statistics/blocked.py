"""The table in torch's own operations: in blocks that stay in the cache, so that memory is read once.

Accumulated in fp64; blocks are joined by Chan's rule, never as E[x²] - E[x]². Works on every host, and is
what the compiled kernel is held to.
"""

import math
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from rankscope.probe.rows import Numbers

BLOCK = 32_768
"""Elements looked at together: as fp64 they fill a second-level cache."""

BUCKETS = 40
LOWEST = -30
"""Exponent of the first bucket of `log2_hist`: bucket i counts magnitudes in [2^(i-30), 2^(i-29)), the
first also what is smaller, the last also what is greater; zeros and non-finite elements are not counted."""


@dataclass(slots=True)
class _Sums:
    """What is known of the blocks so far."""

    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zero: int = 0
    subnormal: int = 0
    saturated: int = 0
    finite: int = 0
    low: float = math.inf
    high: float = -math.inf
    least: float = math.inf
    mean: float = 0.0
    squares: float = 0.0
    l1: float = 0.0
    histogram: list[int] = field(default_factory=lambda: [0] * BUCKETS)


def table(values: Tensor) -> Numbers:
    """Every statistic of a dense real tensor on the host.

    Args:
        values: Any shape and strides; floating point, integer or bool.

    Returns:
        The table; an empty tensor has none, one without a finite element has counts only.
    """
    if values.numel() == 0:
        return Numbers()
    sums = _Sums()
    flat = values.reshape(-1) if values.is_contiguous() else values.contiguous().view(-1)
    for block in cast("tuple[Tensor, ...]", flat.split(BLOCK)):
        _add(sums, block)
    return _numbers(sums, values.numel())


def _add(sums: _Sums, block: Tensor) -> None:
    is_float = block.is_floating_point()
    wide = block.double()
    if is_float and not math.isfinite(float(wide.sum())):
        wide = _without_nonfinite(sums, wide)
    amount = wide.numel()
    if amount == 0:
        return
    low, high = (float(end) for end in torch.aminmax(wide))
    magnitudes = wide.abs()
    sums.low, sums.high = min(sums.low, low), max(sums.high, high)
    sums.l1 += float(magnitudes.sum())
    nonzero = magnitudes[magnitudes > 0]
    sums.zero += amount - nonzero.numel()
    if nonzero.numel():
        sums.least = min(sums.least, float(nonzero.min()))
        _count(sums, nonzero, block.dtype)
    _join(sums, wide, amount)


def _without_nonfinite(sums: _Sums, wide: Tensor) -> Tensor:
    nan = int(wide.isnan().sum())
    posinf, neginf = int(wide.isposinf().sum()), int(wide.isneginf().sum())
    sums.nan, sums.posinf, sums.neginf = sums.nan + nan, sums.posinf + posinf, sums.neginf + neginf
    return wide[wide.isfinite()] if nan + posinf + neginf else wide


def _count(sums: _Sums, nonzero: Tensor, dtype: torch.dtype) -> None:
    exponents = torch.frexp(nonzero).exponent.to(torch.int64) - 1 - LOWEST
    counted = torch.bincount(exponents.clamp_(0, BUCKETS - 1), minlength=BUCKETS)
    more = cast("list[int]", counted.tolist())
    sums.histogram = [kept + new for kept, new in zip(sums.histogram, more, strict=True)]
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        sums.subnormal += int((nonzero < limits.smallest_normal).sum())
        sums.saturated += int((nonzero == limits.max).sum())


def _join(sums: _Sums, wide: Tensor, amount: int) -> None:
    mean = float(wide.mean())
    squares = float((wide - mean).square_().sum())
    both = sums.finite + amount
    apart = mean - sums.mean
    sums.squares += squares + apart * apart * sums.finite * amount / both
    sums.mean += apart * amount / both
    sums.finite = both


def _numbers(sums: _Sums, numel: int) -> Numbers:
    infinite = sums.posinf + sums.neginf
    counts = Numbers(
        nonfinite_count=sums.nan + infinite,
        nan_count=sums.nan,
        inf_count=infinite,
        posinf_count=sums.posinf,
        neginf_count=sums.neginf,
        zero_count=sums.zero,
        zero_frac=sums.zero / numel,
        subnormal_count=sums.subnormal,
        saturated_count=sums.saturated,
        log2_hist=tuple(sums.histogram),
    )
    if not sums.finite:
        return counts
    mean_square = sums.squares / sums.finite + sums.mean * sums.mean
    return counts._replace(
        min=sums.low,
        max=sums.high,
        absmax=max(-sums.low, sums.high),
        absmin_nonzero=None if math.isinf(sums.least) else sums.least,
        mean=sums.mean,
        std=math.sqrt(sums.squares / sums.finite),
        l1=sums.l1,
        l2=math.sqrt(mean_square * sums.finite),
        rms=math.sqrt(mean_square),
    )
