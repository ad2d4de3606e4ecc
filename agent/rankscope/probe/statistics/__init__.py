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
from rankscope.probe.statistics.numbers import Sums, norms_of, numbers_of

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
    return numbers_of(_summed([values], [zeros])[0])


def tables(values: Sequence[Tensor], zeros: Sequence[int] | None = None) -> list[Numbers]:
    """Every statistic of each tensor: `table` in one call, in which a small one costs a few microseconds."""
    return [numbers_of(sums) for sums in _summed(values, zeros)]


def norms(values: Sequence[Tensor]) -> list[Numbers]:
    """Norm and greatest magnitude of each tensor's finite elements, and its other elements counted.

    With a kernel, they are taken from its table, which costs less than torch's two norms do.
    """
    if kernel() is None:
        with in_torch():
            return [norms_in_torch(each) for each in values]
    return [norms_of(sums) for sums in _summed([in_memory_order(each) for each in values], None)]


def _summed(values: Sequence[Tensor], zeros: Sequence[int] | None) -> list[Sums]:
    missing = zeros if zeros is not None else [0] * len(values)
    native = kernel()
    if native is None:
        with in_torch():
            return [blocked(each, none) for each, none in zip(values, missing, strict=True)]
    made = _by_kernel(native, values, zeros=missing)
    return [
        in_range(sums, each, zeros=none) if each.dtype is torch.float64 else sums
        for sums, each, none in zip(made, values, missing, strict=True)
    ]


def _by_kernel(native: Kernel, values: Sequence[Tensor], *, zeros: Sequence[int]) -> list[Sums]:
    """One call for the tensors that can be read where they lie; the others one by one, in stretches."""
    known, many = native.kinds, threads()
    is_simple = [not none and each.dtype in known and is_plain(each) for each, none in zip(values, zeros, strict=True)]
    if all(is_simple):
        return native.tables(values, many)
    simple = iter(native.tables([each for each, is_in in zip(values, is_simple, strict=True) if is_in], many))
    return [
        next(simple)
        if is_in
        else native.stretched(stretches(each) if each.numel() else (), none, threads=many)
        if each.dtype in known
        else blocked(each, none)
        for each, none, is_in in zip(values, zeros, is_simple, strict=True)
    ]
