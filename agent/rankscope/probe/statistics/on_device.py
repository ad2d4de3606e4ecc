"""The table of a tensor on an accelerator: launched there, and put together on the host when it has arrived.

Nothing here makes the host wait: no size depends on a value, and every number stays on the device until all of a
step's travel in one copy. Sums are of values scaled by a power of two and taken from near their mean, in fp64 where
they are added up, so that no square leaves the range of fp32.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, cast

import torch
from torch import Tensor

from rankscope.probe.rows import Numbers
from rankscope.probe.statistics.counted_on_device import stream_of
from rankscope.probe.statistics.fingerprint import RUN_BYTES, Fingerprint, pair_hashes, weights
from rankscope.probe.statistics.layout import flat, is_plain, pieces
from rankscope.probe.statistics.numbers import Sums, leaves_range, numbers_of
from rankscope_proto.log2_histogram import BUCKETS, LOWEST

CHUNK = 1 << 21
"""Elements looked at in one go: what is made on the way for them stays below 100 MB of device memory."""

_FLOATS, _COUNTS = 8, 7
_WORDS = _FLOATS + _COUNTS + BUCKETS + 2


class Chunk(NamedTuple):
    """A part of a tensor whose numbers are on their way.

    Attributes:
        words: int64[57] on the device: float64 numbers by their bits, counts, histogram, hashes.
        size: Bytes of the part.
    """

    words: Tensor
    size: int


class Launched(NamedTuple):
    """A tensor whose table is on its way.

    Attributes:
        chunks: Its parts in logical order.
        zeros: Elements that are 0 and not in memory.
        has_fingerprint: Whether its bytes were hashed: not where they do not lie in logical order.
        has_histogram: Whether it was counted: not where only deterministic operations are allowed.
    """

    chunks: list[Chunk]
    zeros: int
    has_fingerprint: bool
    has_histogram: bool


def launch(values: Tensor, zeros: int = 0) -> Launched | None:
    """Launch the reductions of a table; None: there is no table of such a tensor on its device."""
    if values.is_complex() or values.device.type == "mps" or not values.numel():
        return None
    has_histogram = values.is_cpu or not torch.are_deterministic_algorithms_enabled()
    in_order = is_plain(values)
    chunks = [
        Chunk(_words(part, in_order, has_histogram=has_histogram), _size(part)) for part in _parts(values, in_order)
    ]
    return Launched(chunks, zeros, in_order and not zeros, has_histogram)


def _size(part: Tensor) -> int:
    return part.numel() * part.itemsize


def _parts(values: Tensor, in_order: bool) -> Iterator[Tensor]:
    if in_order:
        yield from cast("tuple[Tensor, ...]", flat(values).split(CHUNK))
    else:
        for piece in pieces(values):
            yield piece.reshape(-1)


def _words(part: Tensor, in_order: bool, *, has_histogram: bool) -> Tensor:
    is_float = part.is_floating_point()
    values = part if is_float and part.itemsize >= 4 else part.float() if is_float else part.double()
    finite = values.isfinite()
    kept = torch.where(finite, values, 0.0)
    magnitudes = kept.abs()
    words = [
        _floats(values, finite, kept=kept, magnitudes=magnitudes),
        _counts(values, finite, magnitudes=magnitudes, limits=torch.finfo(part.dtype) if is_float else None),
        _histogram(magnitudes) if has_histogram else torch.zeros(BUCKETS, dtype=torch.int64, device=part.device),
        _hashes(part) if in_order else torch.zeros(2, dtype=torch.int64, device=part.device),
    ]
    return torch.cat(words)


def _floats(values: Tensor, finite: Tensor, *, kept: Tensor, magnitudes: Tensor) -> Tensor:
    exponent = torch.frexp(magnitudes.amax()).exponent.clamp(-120, 120)
    scale = torch.ldexp(torch.ones((), dtype=values.dtype, device=values.device), -exponent)
    scaled = kept * scale
    near = (scaled.sum(dtype=torch.float64) / finite.sum().clamp(min=1)).to(values.dtype)
    apart = torch.where(finite, scaled - near, 0.0)
    numbers = [
        scale,
        near,
        apart.sum(dtype=torch.float64),
        (apart * apart).sum(dtype=torch.float64),
        scaled.abs().sum(dtype=torch.float64),
        torch.where(finite, values, math.inf).amin(),
        torch.where(finite, values, -math.inf).amax(),
        torch.where(magnitudes > 0, magnitudes, math.inf).amin(),
    ]
    return torch.stack([number.double() for number in numbers]).view(torch.int64)


def _counts(values: Tensor, finite: Tensor, *, magnitudes: Tensor, limits: torch.finfo | None) -> Tensor:
    counts = [
        finite,
        values.isnan(),
        values.isposinf(),
        values.isneginf(),
        values == 0,
        # Of whole numbers none: they have no limits that mean something was lost.
        (magnitudes > 0) & (magnitudes < (limits.smallest_normal if limits else 0.0)),
        magnitudes == (limits.max if limits else math.inf),
    ]
    return torch.stack([count.sum() for count in counts])


def _histogram(magnitudes: Tensor) -> Tensor:
    # Not `bincount`: it makes the host wait for the greatest value.
    buckets = (torch.frexp(magnitudes).exponent - 1 - LOWEST).clamp_(0, BUCKETS - 1).to(torch.int64)
    counts = torch.zeros(BUCKETS, dtype=torch.int64, device=magnitudes.device)
    return counts.scatter_add_(0, buckets, (magnitudes > 0).to(torch.int64))


def _hashes(part: Tensor) -> Tensor:
    """Hash of the whole runs, and that of the rest."""
    data = part.view(torch.uint8)
    whole = data.numel() // RUN_BYTES * RUN_BYTES
    keys, factors = _constants(part.device, CHUNK * 8 // RUN_BYTES, stream_of(part.device))
    joined = last = torch.zeros((), dtype=torch.int64, device=part.device)
    if whole:
        head = data[:whole]
        words = (head if head.data_ptr() % 8 == 0 and head.storage_offset() % 8 == 0 else head.clone()).view(
            torch.int32
        )
        hashes = pair_hashes(words.view(-1, 512), keys).sum(1)
        joined = (hashes * factors[factors.numel() - hashes.numel() :]).sum()
    if whole < data.numel():
        tail = torch.zeros((data.numel() - whole + 7) // 8 * 8, dtype=torch.uint8, device=part.device)
        tail[: data.numel() - whole] = data[whole:]
        words = tail.view(torch.int32)
        last = pair_hashes(words, keys[: words.numel()]).sum()
    return torch.stack([joined, last])


@lru_cache(maxsize=16)
def _constants(device: torch.device, runs: int, stream: int) -> tuple[Tensor, Tensor]:
    del stream
    keys, factors = weights(runs)
    return keys.to(device, non_blocking=True), factors.to(device, non_blocking=True)


def arrived(launched: Launched, words: Tensor) -> Numbers:
    """The table, from what has arrived.

    Args:
        launched: What was launched.
        words: int64[57 * chunks] on the host.
    """
    finite, mean, squares, l1 = float(launched.zeros), 0.0, 0.0, 0.0
    ends = [0.0, 0.0, math.inf] if launched.zeros else [math.inf, -math.inf, math.inf]
    counts, histogram, fingerprint = [0] * (_COUNTS - 1), [0] * BUCKETS, Fingerprint()
    for chunk, mine in zip(launched.chunks, words.view(-1, _WORDS), strict=True):
        scale, near, s1, s2, magnitude, *found = cast("list[float]", mine[:_FLOATS].view(torch.float64).tolist())
        amount, *more = cast("list[int]", mine[_FLOATS : _FLOATS + _COUNTS].tolist())
        counts = [kept + new for kept, new in zip(counts, more, strict=True)]
        buckets = cast("list[int]", mine[_FLOATS + _COUNTS : -2].tolist())
        histogram = [kept + new for kept, new in zip(histogram, buckets, strict=True)]
        fingerprint.join(*cast("list[int]", mine[-2:].tolist()), size=chunk.size)
        ends = [min(ends[0], found[0]), max(ends[1], found[1]), min(ends[2], found[2])]
        if amount:
            own_mean, both = (near + s1 / amount) / scale, finite + amount
            apart = own_mean - mean
            squares += max(0.0, s2 - s1 * (s1 / amount)) / scale / scale + apart * apart * (finite * amount / both)
            mean, finite, l1 = mean + apart * amount / both, both, l1 + magnitude / scale
    counts[3] += launched.zeros
    square = squares / finite + mean * mean if finite else 0.0
    sums = Sums(
        *(finite, mean, math.sqrt(squares / max(1.0, finite)), l1, math.sqrt(square * finite), math.sqrt(square)),
        *(ends[0], ends[1], ends[2], *counts),
        histogram=histogram if launched.has_histogram else (),
        fingerprint=fingerprint.value if launched.has_fingerprint else None,
    )
    made = numbers_of(sums)
    return made._replace(std=None, l2=None, rms=None) if leaves_range(sums) else made
