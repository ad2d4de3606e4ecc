"""Tries a compiled kernel on tensors whose numbers are computed here in plain Python, type by type.

Run as `python -I -S trial.py LIBRARY`; ends with 0 if every number is right. It knows the standard library only.
"""

import ctypes
import math
import random
import struct
import sys
from collections.abc import Callable, Iterator, Sequence

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
LAYOUT = struct.Struct("=3Q2d3Q8d43Qd")
NUMBERS = {"finite": 59, "mean": 12, "std": 13, "l1": 14, "l2": 4, "rms": 15, "min": 9, "max": 10, "absmin": 11}
"""Where the kernel lists them."""
COUNTS = (1, 5, 6, 7, 16, 17, *range(19, 59), 18)
BYTE = 8
TOLERANCE = 1e-6


def mixed(z: int) -> int:
    """The finish of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


KEYS = [mixed((i + 1) * GOLDEN & MASK) >> 32 for i in range(512)]


def fingerprint(data: bytes) -> int:
    """As fingerprint.py defines it."""
    padded = data + bytes(-len(data) % 8)
    words = struct.unpack(f"<{len(padded) // 4}I", padded)
    joined = 0
    for start in range(0, len(words), 512):
        run = words[start : start + 512]
        pairs = zip(run[::2], run[1::2], KEYS[::2], KEYS[1::2], strict=False)
        joined = (joined * GOLDEN + sum((a ^ k) * (b ^ m) + (b << 32 | a) for a, b, k, m in pairs)) & MASK
    return mixed(joined ^ mixed(len(data) + 1))


def expected(values: Sequence[float], *, normal: float, top: float) -> tuple[list[float], list[int]]:
    """The numbers of a tensor, as the kernel lists them, without the fingerprint."""
    finite = [value for value in values if math.isfinite(value)]
    magnitudes = [abs(value) for value in finite if value]
    amount = max(1, len(finite))
    mean = math.fsum(finite) / amount
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / amount)
    square = math.fsum(value * value for value in finite)
    numbers = [len(finite), mean, deviation, math.fsum(magnitudes), math.sqrt(square), math.sqrt(square / amount)]
    numbers += [min(finite, default=math.inf), max(finite, default=-math.inf), min(magnitudes, default=math.inf)]
    counts = [sum(map(math.isnan, values)), values.count(math.inf), values.count(-math.inf)]
    counts += [len(finite) - len(magnitudes), sum(each < normal for each in magnitudes), magnitudes.count(top)]
    histogram = [0] * 40
    for each in magnitudes:
        histogram[min(39, max(0, math.frexp(each)[1] - 1 + 30))] += 1
    return numbers, counts + histogram


def tensors() -> Iterator[list[float]]:
    """Ordinary ones, and each of the ways to be not."""
    chance = random.Random(0)
    for amount in (0, 1, 7, 600, 2_600):
        yield [chance.gauss(0, 1) for _ in range(amount)]
    many = [chance.gauss(0, 1) for _ in range(2_600)]
    yield [max(0.0, value) for value in many]
    yield [value + 1000 for value in many]
    yield [value * 2.0 ** (index % 30 - 15) for index, value in enumerate(many)]
    odd = {index: math.nan if index % 500 else math.inf for index in range(0, 2_600, 250)}
    yield [odd.get(index, value) for index, value in enumerate(many)]
    yield [-math.inf] * 1_100
    yield [3.75] * 2_600
    yield [0.0, -0.0] * 1_300
    yield [value * 1e-6 for value in many]


def bfloat16(values: Sequence[float]) -> bytes:
    """Cut to the upper half of float32."""
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *[word >> 16 for word in words])


def from_bfloat16(data: bytes) -> list[float]:
    """The values of its bytes."""
    words = [half << 16 for half in struct.unpack(f"<{len(data) // 2}H", data)]
    return list(struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *words)))


Case = tuple[int, Callable[[Sequence[float]], bytes], Callable[[bytes], Sequence[float]], float, float]


def plain(kind: int, letter: str, *, normal: float, top: float) -> Case:
    """A type that `struct` knows; what it cannot hold is clamped."""
    size = struct.calcsize(letter)

    def pack(values: Sequence[float]) -> bytes:
        if letter == "e":
            values = [value if not math.isfinite(value) else max(-top, min(top, value)) for value in values]
        if letter not in "fde":
            values = [int(max(-30_000, min(30_000, value))) if math.isfinite(value) else 0 for value in values]
        return struct.pack(f"<{len(values)}{letter}", *values)

    return kind, pack, lambda data: struct.unpack(f"<{len(data) // size}{letter}", data), normal, top


CASES: tuple[Case, ...] = (
    plain(0, "f", normal=2.0**-126, top=(2 - 2.0**-23) * 2.0**127),
    (1, bfloat16, from_bfloat16, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
    plain(2, "e", normal=2.0**-14, top=65504.0),
    plain(3, "d", normal=sys.float_info.min, top=sys.float_info.max),
    plain(4, "q", normal=0.0, top=math.inf),
    plain(5, "i", normal=0.0, top=math.inf),
    plain(6, "h", normal=0.0, top=math.inf),
)


def bytes_of(values: Sequence[float]) -> bytes:
    """As int8, clamped."""
    return bytes(int(max(-127, min(127, value * 50))) & 255 if math.isfinite(value) else 0 for value in values)


def from_bytes(data: bytes) -> list[float]:
    """The values of int8."""
    return [float(byte - 256 if byte > 127 else byte) for byte in data]


def wrong(library: ctypes.CDLL, case: Case, *, values: Sequence[float]) -> str:
    """What the kernel gets wrong; empty: nothing."""
    kind, pack, unpack, normal, top = case
    data = pack(values)
    seen = [float(value) for value in unpack(data)]
    result = ctypes.create_string_buffer(LAYOUT.size)
    library.rankscope_table(ctypes.c_char_p(data), ctypes.c_int64(len(seen)), kind, 1, result)
    found = LAYOUT.unpack(result.raw)
    numbers, counts = expected(seen, normal=normal, top=top)
    scale = numbers[3] / max(1.0, numbers[0])
    for (name, place), want in zip(NUMBERS.items(), numbers, strict=True):
        unit, got = max(abs(want), scale) if name in {"mean", "std"} else abs(want), found[place]
        if want != got and not abs(want - got) <= TOLERANCE * unit:
            return f"kind {kind}, {len(seen)} elements: {name} is {got}, not {want}"
    counted = [found[place] for place in COUNTS]
    if [*counts, fingerprint(data)] != counted:
        return f"kind {kind}, {len(seen)} elements: counts are {counted}, not {counts}"
    return ""


def trial(path: str) -> str:
    """The first thing that is wrong with a library."""
    library = ctypes.CDLL(path)
    values = (ctypes.c_double * 256)(*from_bytes(bytes(range(256))))
    library.rankscope_define(BYTE, values, ctypes.c_double(0.0), ctypes.c_double(math.inf))
    for case in (*CASES, (BYTE, bytes_of, from_bytes, 0.0, math.inf)):
        for each in tensors():
            said = wrong(library, case, values=each)
            if said:
                return said
    return ""


if __name__ == "__main__":
    sys.exit(trial(sys.argv[1]) or 0)
