"""Tensors of every type, ordinary ones and those in which an implementation goes wrong."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
WHOLE = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32]
COMPLEX = [torch.complex64, torch.complex128]

SIZES = [0, 1, 2, 15, 17, 511, 512, 513, 1023, 1024, 1025, 4097, 8191, 8192, 8193, 8704, 17_003]
"""Around the ends of vectors, runs and blocks."""

ODD = 9_000
"""Elements of the tensors that are odd: a block and a bit."""


def chance() -> torch.Generator:
    """A generator of its own, so that the tests leave torch's alone."""
    return torch.Generator().manual_seed(7)


def sized() -> Iterator[tuple[str, Tensor]]:
    """Ordinary values in every size, dense and half of them zero."""
    for size in SIZES:
        values = torch.randn(size, generator=chance(), dtype=torch.float64)
        yield f"normal {size}", values
        yield f"rectified {size}", values.relu()


def odd() -> Iterator[tuple[str, Tensor]]:
    """float64 values that are difficult somewhere; a type may not hold them all."""
    normal = torch.randn(ODD, generator=chance(), dtype=torch.float64)
    powers = torch.randint(-140, 120, (ODD,), generator=chance()).double()
    yield "every magnitude", normal * torch.exp2(powers)
    yield "zeros", torch.zeros(ODD, dtype=torch.float64)
    yield "negative zeros", -torch.zeros(ODD, dtype=torch.float64)
    yield "one value", torch.full((ODD,), 3.7, dtype=torch.float64)
    yield "far from zero", normal + 1e4
    yield "farther", normal + 1e6
    yield "a trend", torch.arange(ODD).double() * 1000
    yield "huge", normal * 1e30
    yield "tiny", normal * 1e-30
    yield "subnormal in float32", normal * 1e-39
    yield "some subnormal", torch.where(powers > 100, normal * 1e-40, normal)
    yield "subnormal in float16", normal * 1e-6
    yield "negative", -normal.abs() - 1
    yield "not a number", torch.full((ODD,), math.nan, dtype=torch.float64)
    yield "minus infinity", torch.full((ODD,), -math.inf, dtype=torch.float64)
    yield "mixed", _mixed(normal)
    yield "beyond float32", normal * 1e200
    yield "below float32", normal * 1e-200


def _mixed(normal: Tensor) -> Tensor:
    values = normal.clone()
    values[[5, 4_097, 8_999]] = math.nan
    values[[7, 8]] = math.inf
    values[10] = -math.inf
    return values


def typed(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The values as a type has them: whole numbers cut, complex ones with another imaginary part."""
    if dtype.is_complex:
        return torch.complex(values, values.flip(0) * 0.5).to(dtype)
    if dtype.is_floating_point:
        return values.to(dtype)
    most = 1 if dtype is torch.bool else torch.iinfo(dtype).max
    least = 0 if dtype is torch.bool else torch.iinfo(dtype).min
    whole = (values.nan_to_num(0.0, 1e4, -1e4) * 50).clamp(max(least, -(2**52)), min(most, 2**52))
    return whole.to(torch.int64).to(dtype)


def arranged() -> Iterator[tuple[str, Tensor]]:
    """Tensors whose elements do not lie one after the other."""
    values = torch.randn(60, 200, generator=chance())
    yield "transposed", values.t()
    yield "strided", values[:, ::3]
    yield "from the end of another", values[1:, 1:]
    yield "at an odd place", values.view(-1)[1:]
    yield "expanded", values[:1, :1].expand(70, 90)
    yield "rows expanded", values[0].expand(50, 200)
    yield "channels last", values.view(6, 10, 20, 10).to(memory_format=torch.channels_last)
    yield "negated lazily", torch.imag(torch.complex(values, values).conj())
    yield "conjugated lazily", torch.complex(values[:4], values[4:8]).conj()
    yield "scalar", torch.tensor(2.5)
    yield "one expanded", torch.tensor(2.5).expand(1)
    yield "halves at an odd place", values.half().view(-1)[3:]
    yield "bytes at an odd place", values.mul(9).to(torch.int8).view(-1)[5:]
