"""The table computed as plainly as can be: every element as a Python number, every sum exact."""

import math
from typing import cast

import torch
from torch import Tensor

from rankscope.probe.rows import Numbers
from rankscope.probe.statistics.fingerprint import mixed

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_KEYS = [mixed((i + 1) * _GOLDEN & _MASK) >> 32 for i in range(512)]
_FLOAT32_MOST = float.fromhex("0x1.ffffffp127")


def elements(values: Tensor) -> list[float]:
    """The elements in logical order; moduli of complex ones."""
    if values.is_complex():
        parts = torch.view_as_real(values.resolve_conj()).double().reshape(-1, 2)
        return [math.hypot(*pair) for pair in cast("list[list[float]]", parts.tolist())]
    return cast("list[float]", values.double().flatten().tolist())


def bytes_of(values: Tensor) -> bytes:
    """The elements' bytes in logical order."""
    flat = values.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).view(-1)
    return bytes(cast("list[int]", flat.view(torch.uint8).tolist())) if flat.numel() else b""


def fingerprint(data: bytes) -> int:
    """By its definition."""
    data_and_zeros = data + bytes(-len(data) % 8)
    words = [int.from_bytes(data_and_zeros[i : i + 4], "little") for i in range(0, len(data_and_zeros), 4)]
    joined = 0
    for start in range(0, len(words), 512):
        run = words[start : start + 512]
        total = 0
        for i in range(0, len(run), 2):
            a, b = run[i], run[i + 1]
            total += (a ^ _KEYS[i]) * (b ^ _KEYS[i + 1]) + (b << 32 | a)
        joined = (joined * _GOLDEN + total) & _MASK
    return mixed(joined ^ mixed(len(data) + 1))


def plain_table(values: Tensor, zeros: int = 0) -> Numbers:
    """The table of a tensor, and of `zeros` elements more that are 0."""
    every = elements(values) + [0.0] * zeros
    if not every:
        return Numbers()
    finite = [each for each in every if math.isfinite(each)]
    magnitudes = sorted(abs(each) for each in finite if each)
    nan, posinf, neginf = sum(map(math.isnan, every)), every.count(math.inf), every.count(-math.inf)
    is_float = values.is_floating_point() or values.is_complex()
    limits = torch.finfo(values.dtype) if is_float else None
    histogram = [0] * 40
    for each in magnitudes:
        histogram[min(39, max(0, math.frexp(each)[1] + 29))] += 1
    counts = Numbers(
        nonfinite_count=nan + posinf + neginf,
        nan_count=nan,
        inf_count=posinf + neginf,
        posinf_count=posinf,
        neginf_count=neginf,
        zero_count=len(finite) - len(magnitudes),
        zero_frac=(len(finite) - len(magnitudes)) / len(every),
        subnormal_count=sum(each < limits.smallest_normal for each in magnitudes) if limits else 0,
        saturated_count=sum(each == limits.max for each in magnitudes) if limits else 0,
        fingerprint=None if zeros else fingerprint(bytes_of(values)),
        log2_hist=tuple(histogram),
    )
    return counts._replace(**_moments(finite, magnitudes)) if finite else counts


def _moments(finite: list[float], magnitudes: list[float]) -> dict[str, float | None]:
    unit = max(magnitudes, default=1.0)  # divided by it, no square leaves the range
    scaled = [each / unit for each in finite]
    mean = math.fsum(scaled) / len(scaled)
    l1 = math.fsum(map(abs, scaled)) * unit
    l2 = math.sqrt(math.fsum(each * each for each in scaled)) * unit
    in_float32 = {
        "min": min(finite),
        "max": max(finite),
        "absmax": max(map(abs, finite)),
        "mean": mean * unit,
        "std": math.sqrt(math.fsum((each - mean) ** 2 for each in scaled) / len(scaled)) * unit,
        "rms": math.sqrt(math.fsum(each * each for each in scaled) / len(scaled)) * unit,
    }
    made: dict[str, float | None] = {
        name: value if abs(value) < _FLOAT32_MOST else None for name, value in in_float32.items()
    }
    least = magnitudes[0] if magnitudes else None
    made["absmin_nonzero"] = least if least and 2.0**-150 < least < _FLOAT32_MOST else None
    made["l1"], made["l2"] = (None if math.isinf(value) else value for value in (l1, l2))
    return made


def differences(found: Numbers, wanted: Numbers, *, tolerance: float) -> list[str]:
    """The statistics that are not the same: counts exactly, sums to a share of the mean magnitude."""
    size = (wanted.l1 or 0.0) / max(1, sum(wanted.log2_hist) + (wanted.zero_count or 0))
    wrong: list[str] = []
    for name, got, want in zip(Numbers._fields, found, wanted, strict=True):
        if not isinstance(want, float) or name == "zero_frac" or not isinstance(got, float | int):
            is_same = got == want
        else:
            unit = max(abs(want), size) if name in {"mean", "std"} else abs(want)
            is_same = got == want or abs(got - want) <= tolerance * unit
        if not is_same:
            wrong.append(f"{name} is {got}, not {want}")
    return wrong
