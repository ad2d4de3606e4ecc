"""Arithmetic and functions of one row's values, None being a missing one: what `typed.py` says, said for two numbers.

The rule of overflow and the order of roundings are those of the SQL, so that both executions
agree to the last bit.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

from rankscope.tql.fields import Type
from rankscope.tql.typed import Apply, Arithmetic

Number = int | float
"""A value of a row."""

Function = Callable[..., Number | None]
"""Gives a value of values that are there; None where the result is missing."""

LEAST, GREATEST = -(2**63), 2**63 - 1
"""The 64-bit integers that a computed integer must be among."""


def arithmetic(node: Arithmetic) -> Function:
    """The function of two values that the node applies."""
    if _is_float(node.left.type) or _is_float(node.right.type) or node.operator == "/":
        return _of_type(_FLOATS[node.operator], node.type)
    return _WHOLE[node.operator]


def apply(node: Apply) -> Function:
    """The function that the node applies to its arguments, coalesce excepted: that takes missing ones."""
    match node.function:
        case "min" | "max":
            return _extreme(node)
        case "abs":
            return math.fabs if _is_float(node.type) else _absolute
        case "ratio":
            return _divided
        case _:
            return _ROOTS[node.function]


def in_type(value: float, wanted: Type) -> Number | None:
    """A float as a value of a type: durations and the like are rounded to whole units, half to even."""
    if _is_float(wanted):
        return value
    if not -(2.0**63) <= value < 2.0**63:
        return None
    return round(value)


def difference(value: Number, earlier: Number) -> Number | None:
    """A value less another of the same type."""
    if isinstance(value, float) or isinstance(earlier, float):
        return _FLOATS["-"](value, earlier)
    return _whole(value - earlier)


def _is_float(kind: Type) -> bool:
    return kind is Type.FLOAT


def _whole(value: int) -> int | None:
    return value if LEAST <= value <= GREATEST else None


def _absolute(value: int) -> int | None:
    return None if value == LEAST else abs(value)


def _of_type(function: Callable[..., float | None], wanted: Type) -> Function:
    """The function with its result as a value of a type."""
    if _is_float(wanted):
        return function

    def rounded(*values: Number) -> Number | None:
        result = function(*values)
        return None if result is None else in_type(result, wanted)

    return rounded


def _float_of(function: Callable[[float, float], float]) -> Callable[[Number, Number], float | None]:
    """A function of floats that is missing where finite operands give no finite result."""

    def result(left: Number, right: Number) -> float | None:
        left, right = float(left), float(right)
        value = function(left, right)
        return None if math.isinf(value) and math.isfinite(left) and math.isfinite(right) else value

    return result


def _divided(left: Number, right: Number) -> float | None:
    return _QUOTIENT(left, right) if right else None


def _remainder(left: Number, right: Number) -> float | None:
    """With the sign of the left side, and rounded as ClickHouse does: `fmod` would be exact."""
    if not right:
        return None
    left, right = float(left), float(right)
    if math.isinf(right) and math.isfinite(left):
        return left
    quotient = left / right
    if not math.isfinite(quotient):
        return None if math.isinf(quotient) and math.isfinite(left) else math.nan
    remainder = left - math.trunc(quotient) * right
    return None if math.isinf(remainder) else remainder


def _whole_remainder(left: int, right: int) -> int | None:
    """With the sign of the left side, as the processor has it; Python's has the right side's."""
    if not right:
        return None
    value = abs(left) % abs(right)
    return _whole(-value if left < 0 else value)


def _extreme(node: Apply) -> Function:
    choose = min if node.function == "min" else max
    if not _is_float(node.type):
        return choose

    def extreme(*values: Number) -> float:
        floats = [float(value) for value in values]
        return math.nan if any(map(math.isnan, floats)) else choose(floats)

    return extreme


def _root(value: Number) -> float | None:
    return None if value < 0 else math.sqrt(value)


def _logarithm(function: Callable[[float], float]) -> Function:
    def logarithm(value: Number) -> float | None:
        return None if value <= 0 else function(float(value))

    return logarithm


def _quotient(left: float, right: float) -> float:
    return left / right


_QUOTIENT = _float_of(_quotient)
_FLOATS: dict[str, Callable[[Number, Number], float | None]] = {
    "+": _float_of(operator.add),
    "-": _float_of(operator.sub),
    "*": _float_of(operator.mul),
    "/": _divided,
    "%": _remainder,
}
_WHOLE: dict[str, Callable[[Any, Any], int | None]] = {
    "+": lambda left, right: _whole(left + right),
    "-": lambda left, right: _whole(left - right),
    "*": lambda left, right: _whole(left * right),
    "%": _whole_remainder,
}
_ROOTS: dict[str, Function] = {"sqrt": _root, "log2": _logarithm(math.log2), "log10": _logarithm(math.log10)}
