"""How many elements are not finite, of many tensors on an accelerator: in launches that do not grow with their number.

A launch costs the host 5 µs, whatever the size, and a model has hundreds of small tensors: those are put one after
the other into chunks, which are counted as a whole; large ones are counted where they are. Nothing here makes the host
wait, and what is made on the way stays below 100 MB of device memory.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import torch
from torch import Tensor

CHUNK = 1 << 22
"""Elements of small tensors that are counted together."""

SMALL = 1 << 18
"""Elements up to which a tensor is copied into a chunk; reading a larger one takes longer than its launches."""

PART = 1 << 23
"""Elements of a large tensor that are looked at in one go."""


class Counted(NamedTuple):
    """Counts on their way.

    Attributes:
        order: Which tensor each is of.
        counts: int32[...] on the device, together as long as `order`.
    """

    order: list[int]
    counts: list[Tensor]


def launch_counts(values: Sequence[Tensor]) -> Counted:
    """Launch the counts of non-finite elements.

    Args:
        values: Real floating-point tensors of one device.
    """
    order: list[int] = []
    counts: list[Tensor] = []
    for chunk in _chunks(values):
        order += chunk
        counts.append(_count_together([values[index] for index in chunk]))
    for index, tensor in enumerate(values):
        if tensor.numel() > SMALL:
            order.append(index)
            counts.append(_count(tensor).view(1))
    return Counted(order, counts)


def _chunks(values: Sequence[Tensor]) -> Iterator[list[int]]:
    """Which small tensors are counted together: of one type, since what is joined takes the widest."""
    open_chunks: dict[torch.dtype, tuple[list[int], int]] = {}
    for index, tensor in enumerate(values):
        if tensor.numel() > SMALL:
            continue
        chunk, amount = open_chunks.get(tensor.dtype, ([], 0))
        if amount + tensor.numel() > CHUNK:
            yield chunk
            chunk, amount = [], 0
        chunk.append(index)
        open_chunks[tensor.dtype] = chunk, amount + tensor.numel()
    yield from (chunk for chunk, _ in open_chunks.values())


def _count_together(values: Sequence[Tensor]) -> Tensor:
    if len(values) == 1:
        return _count(values[0]).view(1)
    before = values[0].new_zeros(1)  # what was counted before the first
    flat = torch.cat([before, *(tensor.reshape(-1) for tensor in values)])
    so_far = _bad(flat).cumsum(0, dtype=torch.int32)
    ends = _ends(tuple(tensor.numel() for tensor in values), flat.device, stream_of(flat.device))
    return so_far.index_select(0, ends).diff()


def _count(values: Tensor) -> Tensor:
    if values.numel() <= PART or not values.is_contiguous():
        return _bad(values).sum(dtype=torch.int32)
    parts = [_bad(part).sum(dtype=torch.int32) for part in cast("tuple[Tensor, ...]", values.view(-1).split(PART))]
    return torch.stack(parts).sum(dtype=torch.int32)


def _bad(values: Tensor) -> Tensor:
    """Which elements are not finite: times 0 they are NaN. Two launches; `isfinite` has four."""
    return values.mul(0).ne(0)


@lru_cache(maxsize=64)
def _ends(sizes: tuple[int, ...], device: torch.device, stream: int) -> Tensor:
    """Where each tensor of a chunk ends: int64[n + 1] on the device, the same in every step."""
    del stream
    return torch.tensor((0, *sizes), dtype=torch.int64, device="cpu").cumsum(0).to(device, non_blocking=True)


def stream_of(device: torch.device) -> int:
    """A number of the stream that is current: what is kept on a device is good on the stream that it was copied on.

    On any other, it may be read before it has arrived, since nobody waits for it.
    """
    current = None if device.type == "cpu" else getattr(torch.get_device_module(device), "current_stream", None)
    return 0 if current is None else int(current(device).stream_id)
