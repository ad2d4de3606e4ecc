"""Calls the compiled kernel: what ctypes needs to know of it, and nothing else.

The kernel reads memory by address. Whoever calls hands over contiguous tensors of this process's memory only, which
live until the call returns. ctypes lets other threads run meanwhile.
"""

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import Struct
from typing import cast

import torch
from torch import Tensor

from rankscope.probe.statistics.numbers import Read

_LAYOUT = Struct("=3Q2d3Q8d43Qd")
"""One tensor's numbers, as `Numbers` in kernel/table.c has them: what `numbers.Read` says."""

_NOTHING = bytes(_LAYOUT.size)

KINDS: dict[torch.dtype, int] = {
    torch.float32: 0,
    torch.bfloat16: 1,
    torch.float16: 2,
    torch.float64: 3,
    torch.int64: 4,
    torch.int32: 5,
    torch.int16: 6,
}
"""Element types that the kernel reads itself; the order of `kinds` in kernel/table.c."""

BYTE_KINDS = {
    getattr(torch, name): 8 + index
    for index, name in enumerate(
        (
            *("bool", "uint8", "int8"),
            *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
        )
    )
    if isinstance(getattr(torch, name, None), torch.dtype)
}
"""Element types of one byte, which the kernel looks up in a table that torch makes."""


def byte_values(dtype: torch.dtype) -> list[float]:
    """What each of the 256 bytes stands for."""
    return cast("list[float]", torch.arange(256, dtype=torch.uint8, device="cpu").view(dtype).double().tolist())


class Kernel:
    """A compiled kernel.

    Args:
        path: The library, which has passed its self-test on this machine.

    Raises:
        OSError: It cannot be loaded.
        AttributeError: It is no kernel of this version.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        pointer, count = ctypes.c_void_p, ctypes.c_int64
        self._table = library.rankscope_table
        self._table.argtypes = [pointer, count, ctypes.c_int, ctypes.c_int, pointer]
        self._tables = library.rankscope_tables
        self._tables.argtypes = [ctypes.c_int, pointer, ctypes.c_int, pointer]
        self._begin, self._add = library.rankscope_begin, library.rankscope_add
        self._begin.argtypes = [pointer]
        self._add.argtypes = [pointer, pointer, count, ctypes.c_int, ctypes.c_int]
        self._add_zeros, self._finish = library.rankscope_add_zeros, library.rankscope_finish
        self._add_zeros.argtypes, self._finish.argtypes = [pointer, count], [pointer, pointer]
        library.rankscope_size.restype = ctypes.c_uint64
        self._size = int(library.rankscope_size())
        for function in (
            self._table,
            self._tables,
            self._begin,
            self._add,
            self._add_zeros,
            self._finish,
            library.rankscope_define,
        ):
            function.restype = None
        library.rankscope_define.argtypes = [ctypes.c_int, pointer, ctypes.c_double, ctypes.c_double]
        self.kinds = dict(KINDS)
        for dtype, kind in BYTE_KINDS.items():
            normal, most = _limits(dtype)
            library.rankscope_define(kind, (ctypes.c_double * 256)(*byte_values(dtype)), normal, most)
            self.kinds[dtype] = kind

    def table(self, values: Tensor, threads: int) -> Read:
        """What is known of a contiguous tensor.

        Args:
            values: On the host, of a type in `kinds`.
            threads: Most threads to work with.
        """
        # An array and its address: ctypes takes three times as long to make its own, and a table of 64 KiB takes 3 us.
        result = array("Q", _NOTHING)
        self._table(values.data_ptr(), values.numel(), self.kinds[values.dtype], threads, result.buffer_info()[0])
        return _LAYOUT.unpack(result)

    def tables(self, values: Sequence[Tensor], threads: int) -> list[Read]:
        """What is known of each of many contiguous tensors, between whose pieces the threads divide all at once.

        Args:
            values: On the host, of types in `kinds`.
            threads: Most threads to work with.
        """
        kinds, many = self.kinds, len(values)
        asked = array("q", [number for each in values for number in (each.data_ptr(), each.numel(), kinds[each.dtype])])
        results = array("Q", _NOTHING * many)
        self._tables(many, asked.buffer_info()[0], threads, results.buffer_info()[0])
        return list(_LAYOUT.iter_unpack(results))

    def stretched(self, stretches: Iterable[Tensor], zeros: int, *, threads: int) -> Read:
        """What is known of one tensor that is handed over in stretches.

        Args:
            stretches: Contiguous host tensors of one type in `kinds`, as `layout.stretches` makes them.
            zeros: Elements that are 0 and not in memory.
            threads: Most threads to work with.
        """
        part, result = ctypes.create_string_buffer(self._size), ctypes.create_string_buffer(_LAYOUT.size)
        self._begin(part)
        for each in stretches:
            self._add(part, each.data_ptr(), each.numel(), self.kinds[each.dtype], threads)
        self._add_zeros(part, zeros)
        self._finish(part, result)
        return _LAYOUT.unpack(result.raw)


def _limits(dtype: torch.dtype) -> tuple[float, float]:
    """The least normal and the greatest magnitude; whole numbers have neither subnormal nor saturated elements."""
    if not dtype.is_floating_point:
        return 0.0, float("inf")
    limits = torch.finfo(dtype)
    return limits.smallest_normal, limits.max
