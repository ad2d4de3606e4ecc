"""Any tensor as contiguous stretches in logical order, without ever holding a copy of the whole.

A transposed weight of 100 MB would otherwise be copied, and an expanded scalar written out: both cost the training
memory that it may not have.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

LENGTH = 1 << 18
"""Elements of a stretch of a tensor that has to be copied; a multiple of `ALIGNED`."""

ALIGNED = 2048
"""All stretches but the last have a multiple of so many elements: whole runs of the fingerprint, of every type."""


def is_plain(values: Tensor) -> bool:
    """Whether the elements lie in memory in logical order, as they are: not lazily conjugated or negated."""
    return values.is_contiguous() and not values.is_neg() and not values.is_conj() and values.data_ptr() != 0


def flat(values: Tensor) -> Tensor:
    """The elements of a plain tensor, 1-d and one after the other: `view` leaves one element the stride that it has."""
    return values.as_strided((values.numel(),), (1,))


def stretches(values: Tensor) -> Iterator[Tensor]:
    """The elements as contiguous 1-d tensors, of which only the latest is good.

    Args:
        values: Dense, on the host, any strides.

    Yields:
        One stretch where the tensor is contiguous, else copies of at most `LENGTH` elements and a piece.
    """
    if is_plain(values):
        yield flat(values)
        return
    # On the host by name: a program may have another default device, whose addresses the kernel cannot read.
    buffer = torch.empty(min(values.numel(), 2 * LENGTH), dtype=values.dtype, device="cpu")
    filled = 0
    for piece in pieces(values):
        buffer[filled : filled + piece.numel()].view(piece.shape).copy_(piece)
        filled += piece.numel()
        ready = filled // ALIGNED * ALIGNED
        if filled >= LENGTH:
            yield buffer[:ready]
            buffer[: filled - ready] = buffer[ready:filled].clone()
            filled -= ready
    if filled:
        yield buffer[:filled]


def pieces(values: Tensor) -> Iterator[Tensor]:
    """Parts of the tensor in logical order, each of at most `LENGTH` elements."""
    if values.numel() <= LENGTH:
        yield values
        return
    row = values.numel() // values.shape[0]
    if row > LENGTH:
        for index in range(values.shape[0]):
            yield from pieces(values[index])
        return
    rows = LENGTH // row
    for start in range(0, values.shape[0], rows):
        yield values[start : start + rows]


def in_memory_order(values: Tensor) -> Tensor:
    """The same elements as a contiguous tensor, in another order, if they lie in memory without gaps; else as they are.

    For what does not depend on order: gradients of convolutions are often `channels_last`.
    """
    if values.is_contiguous():
        return values
    order = sorted(range(values.dim()), key=lambda dimension: (values.stride(dimension), values.shape[dimension]))
    return values.permute(order[::-1])
