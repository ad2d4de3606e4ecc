"""All statistics of a tensor, in as few passes over its memory as the machine allows.

`table` and `tables` give all of them, `norms` those of level 1; each exact on every type, the finite elements alone.
What is computed, and by what, is the same for both engines: the compiled kernel, and torch's operations until it is
there. `engine` says which one it is.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rankscope.probe.rows import Numbers
from rankscope.probe.statistics.blocked import blocked, in_range
from rankscope.probe.statistics.engines import Engine, engine, in_torch, kernel, prepare, threads
from rankscope.probe.statistics.layout import in_memory_order, is_plain, stretches
from rankscope.probe.statistics.native import Kernel
from rankscope.probe.statistics.norms import norms_in_torch
from rankscope.probe.statistics.numbers import Read, Sums, is_ordinary, norms_of, numbers_of, ordinary_numbers, sums_of

__all__ = ["Engine", "engine", "norms", "prepare", "table", "tables"]


def table(values: Tensor, zeros: int = 0) -> Numbers:
    """Every statistic of a tensor.

    Args:
        values: Dense, on the host, of any shape, strides and type; of complex numbers it is their moduli, of a sparse
            tensor the elements that it stores.
        zeros: Elements that a sparse tensor does not store.

    Returns:
        The table; an empty tensor has none, one without a finite element has counts only.
    """
    native = kernel()
    if native is None:
        with in_torch():
            return numbers_of(blocked(values, zeros))
    return _by_kernel(native, values, zeros=zeros, many=threads())


def tables(values: Sequence[Tensor], zeros: Sequence[int] | None = None) -> list[Numbers]:
    """Every statistic of each tensor: `table` of each, a small one of which costs a few microseconds."""
    missing = zeros if zeros is not None else [0] * len(values)
    return [table(each, none) for each, none in zip(values, missing, strict=True)]


def norms(values: Sequence[Tensor]) -> list[Numbers]:
    """Norm and greatest magnitude of each tensor's finite elements, and its other elements counted.

    With a kernel, they are taken from its table, which costs less than torch's two norms do.
    """
    native = kernel()
    if native is None:
        with in_torch():
            return [norms_in_torch(each) for each in values]
    many = threads()
    return [_norms_by_kernel(native, in_memory_order(each), many) for each in values]


def _by_kernel(native: Kernel, values: Tensor, *, zeros: int, many: int) -> Numbers:
    if values.dtype not in native.kinds:
        return numbers_of(blocked(values, zeros))
    read = _read(native, values, zeros=zeros, many=many)
    if not zeros and is_ordinary(read):
        return ordinary_numbers(read)
    return numbers_of(_looked_at_again(read, values, zeros))


def _norms_by_kernel(native: Kernel, values: Tensor, many: int) -> Numbers:
    if values.dtype not in native.kinds:
        return norms_of(blocked(values))
    read = _read(native, values, zeros=0, many=many)
    return Numbers(*read[:5]) if is_ordinary(read) else norms_of(_looked_at_again(read, values, 0))


def _read(native: Kernel, values: Tensor, *, zeros: int, many: int) -> Read:
    """What the kernel says; of a tensor that cannot be read where it lies, in stretches."""
    if not zeros and is_plain(values):
        return native.table(values, many)
    return native.stretched(stretches(values) if values.numel() else (), zeros, threads=many)


def _looked_at_again(read: Read, values: Tensor, zeros: int) -> Sums:
    sums = sums_of(read)
    sums = in_range(sums, values, zeros=zeros) if values.dtype is torch.float64 else sums
    return sums._replace(fingerprint=None) if zeros else sums
