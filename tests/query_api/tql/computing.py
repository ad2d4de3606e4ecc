"""What arithmetic of one row means, said in plain Python, to hold the SQL against; and awkward numbers to try it on."""

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

from rankscope.tql.fields import Type

MAX, MIN = 2**63 - 1, -(2**63)
INTEGERS: tuple[int | None, ...] = (None, 0, 1, -1, 2, 3, -7, 2**31, 2**53 + 1, MAX, MAX - 1, MIN, MIN + 1, 3037000500)
COUNTS: tuple[int | None, ...] = (None, 0, 1, 3, 7, 2**53 + 1, 2**63, 2**64 - 1, 2**64 - 2)
FLOATS: tuple[float | None, ...] = (
    None, 0.0, -0.0, 1.0, -1.5, 0.1, 3.0, 5e-324, 1e-300, 1e300, 1.7e308, -1.7e308, 2.0**53, 2.0**63, math.nan,
    math.inf, -math.inf,
)  # fmt: skip
NARROW: tuple[float | None, ...] = tuple(
    None if value is None else struct.unpack("<f", struct.pack("<f", value))[0]
    for value in (None, 0.1, -2.5, 3.4e38, 1.4e-45, 0.0, math.nan, math.inf)
)

Number = int | float | None


def computed(sign: str, left: Number, right: Number, *, kind: Type) -> Number:
    """What `left sign right` is; None: missing."""
    if left is None or right is None or (sign in "/%" and right == 0):
        return None
    if isinstance(left, int) and isinstance(right, int) and sign != "/":
        return within(_WHOLE[sign](left, right))
    sides = float(left), float(right)
    value = _FLOATS[sign](*sides)
    if math.isinf(value) and all(math.isfinite(side) for side in sides):
        return None
    return value if kind is Type.FLOAT else whole(value)


def within(value: int) -> int | None:
    """An integer, missing beyond 64 bits."""
    return value if MIN <= value <= MAX else None


def whole(value: float) -> int | None:
    """A float rounded half to even, missing beyond 64 bits."""
    return within(round(value)) if math.isfinite(value) else None


def _quotient(left: float, right: float) -> float:
    if math.isnan(left) or math.isnan(right) or (math.isinf(left) and math.isinf(right)):
        return math.nan
    return left / right if math.isfinite(left) else math.copysign(1, right) * left


def _remainder(left: float, right: float) -> float:
    if math.isinf(right) and math.isfinite(left):
        return left
    quotient = _quotient(left, right)
    if math.isnan(quotient) or not math.isfinite(left):
        return math.nan
    return math.inf if math.isinf(quotient) else left - float(math.trunc(quotient)) * right


_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
}
_WHOLE: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": lambda left, right: left - right * (abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)),
}


def same(found: Any, wanted: Any) -> bool:
    """Whether two values are the same: NaN is itself, and the zeros are one."""
    if isinstance(found, float) and isinstance(wanted, float) and math.isnan(found):
        return math.isnan(wanted)
    return type(found) is type(wanted) and found == wanted
