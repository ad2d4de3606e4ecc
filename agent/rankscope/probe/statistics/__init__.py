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
    return _numbers(_read(native, values, zeros=zeros, many=threads()), values, zeros=zeros)


def tables(values: Sequence[Tensor], zeros: Sequence[int] | None = None) -> list[Numbers]:
    """Every statistic of each tensor: `table` of all in one call, in which a small one costs a few microseconds."""
    native, missing = kernel(), zeros if zeros is not None else [0] * len(values)
    if native is None:
        return [table(each, none) for each, none in zip(values, missing, strict=True)]
    reads = _read_all(native, values, zeros=missing)
    return [_numbers(read, each, zeros=none) for read, each, none in zip(reads, values, missing, strict=True)]


def norms(values: Sequence[Tensor]) -> list[Numbers]:
    """Norm and greatest magnitude of each tensor's finite elements, and its other elements counted.

    With a kernel, they are taken from its table, which costs less than torch's two norms do.
    """
    native = kernel()
    if native is None:
        with in_torch():
            return [norms_in_torch(each) for each in values]
    ordered = [in_memory_order(each) for each in values]
    reads = _read_all(native, ordered, zeros=[0] * len(ordered))
    return [_norms(read, each) for read, each in zip(reads, ordered, strict=True)]


def _numbers(read: Read | None, values: Tensor, *, zeros: int) -> Numbers:
    if read is not None and not zeros and is_ordinary(read):
        return ordinary_numbers(read)
    return numbers_of(_looked_at_again(read, values, zeros=zeros))


def _norms(read: Read | None, values: Tensor) -> Numbers:
    return (
        Numbers(*read[:5])
        if read is not None and is_ordinary(read)
        else norms_of(_looked_at_again(read, values, zeros=0))
    )


def _read_all(native: Kernel, values: Sequence[Tensor], *, zeros: Sequence[int]) -> list[Read | None]:
    """`_read` of each; of those that can be read where they lie, in one call."""
    known, many = native.kinds, threads()
    is_simple = [not none and each.dtype in known and is_plain(each) for each, none in zip(values, zeros, strict=True)]
    together = iter(native.tables([each for each, is_in in zip(values, is_simple, strict=True) if is_in], many))
    return [
        next(together) if is_in else _read(native, each, zeros=none, many=many)
        for each, none, is_in in zip(values, zeros, is_simple, strict=True)
    ]


def _read(native: Kernel, values: Tensor, *, zeros: int, many: int) -> Read | None:
    """What the kernel says, in stretches of what it cannot read where it lies; None of a type that it does not know."""
    if values.dtype not in native.kinds:
        return None
    if not zeros and is_plain(values):
        return native.table(values, many)
    return native.stretched(stretches(values) if values.numel() else (), zeros, threads=many)


def _looked_at_again(read: Read | None, values: Tensor, *, zeros: int) -> Sums:
    if read is None:
        return blocked(values, zeros)
    sums = sums_of(read)
    sums = in_range(sums, values, zeros=zeros) if values.dtype is torch.float64 else sums
    return sums._replace(fingerprint=None) if zeros else sums
