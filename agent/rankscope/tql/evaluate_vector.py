"""Numeric conditions with numpy, for the batches that its 64-bit numbers hold exactly.

Promises the answers of `evaluate_plain`: what numpy would round, wrap or cast is left to it, node by
node (`Unfit`): integers above 2^63 - 1, products that may overflow, an integer and a float that
differ by less than a float can tell.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rankscope.tql.evaluate_columns import LiveRows, is_column
from rankscope.tql.evaluate_plain import Plain
from rankscope.tql.fields import NUMBERS, Field, Origin, Type
from rankscope.tql.typed import (
    AllOf,
    AnyOf,
    Apply,
    Arithmetic,
    Between,
    Compare,
    Condition,
    Constant,
    Key,
    Opposite,
    Value,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Truths = NDArray[np.bool_]
    Values = NDArray[np.int64] | NDArray[np.float64]

_NUMERIC = NUMBERS | {Type.DURATION, Type.SIZE, Type.TIME, Type.WORD}
_EXACT = 2.0**53
_SAFE_PRODUCT = 2.0**62


def _remainder(left: Any, right: Any) -> Any:
    """Of floats, rounded as ClickHouse does."""
    quotient = np.trunc(left / right)
    remainder = np.where(np.isinf(left), np.nan, left - quotient * right)
    return np.where(np.isinf(right) & np.isfinite(left), left, remainder)


_UFUNCS: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": _remainder,
}


class Unfit(Exception):  # noqa: N818 -- no fault: plain Python takes over
    """Numpy cannot tell exactly."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A value of each row, or one of all rows.

    Attributes:
        values: int64 or float64; any number where there is none.
        present: Where there is one; None: everywhere.
    """

    values: "Values"
    present: "Truths | None" = None

    @property
    def is_float(self) -> bool:
        """Whether they are floats."""
        return self.values.dtype.kind == "f"

    @property
    def floats(self) -> "NDArray[np.float64]":
        """The values as floats."""
        return self.values.astype(np.float64, copy=False)

    def at(self, places: Sequence[int]) -> "Numbers":
        """Those at some places."""
        index = np.array(places, dtype=np.intp)
        return Numbers(self.values[index], None if self.present is None else self.present[index])

    def where(self, present: "Truths") -> "Numbers":
        """The same, and missing where it is false."""
        return Numbers(self.values, present if self.present is None else self.present & present)


def holds(plain: Plain, condition: Condition) -> list[bool]:
    """Of each row, whether the condition is true.

    Args:
        plain: Evaluates what numpy cannot tell, of the same batch.
        condition: What is asked.
    """
    with np.errstate(all="ignore"):
        truths, count = _Vectors(plain).truths(condition), plain.rows.count
        return cast("list[bool]", (truths if len(truths) == count else np.repeat(truths, count)).tolist())


def _and(left: "Truths", right: "Truths") -> "Truths":
    return left & right


def _or(left: "Truths", right: "Truths") -> "Truths":
    return left | right


class _Vectors:
    """Evaluates nodes on one batch, in numpy where it can."""

    def __init__(self, plain: Plain) -> None:
        self.plain = plain

    def truths(self, condition: Condition) -> "Truths":
        """Of each row, or of all in one, whether the condition is true."""
        match condition:
            case AllOf() if condition.operands:
                return functools.reduce(_and, map(self.truths, condition.operands))
            case AnyOf() if condition.operands:
                return functools.reduce(_or, map(self.truths, condition.operands))
            case Opposite():
                return ~self.truths(condition.operand)
            case Compare() | Between():
                return self._compared(condition)
            case _:
                return np.array(self.plain.holds(condition), dtype=np.bool_)

    def _compared(self, condition: Compare | Between) -> "Truths":
        try:
            if isinstance(condition, Compare):
                left, right = self._numbers(condition.left), self._numbers(condition.right)
                return _compare(left, right, symbol=condition.operator)
            value, low, high = map(self._numbers, (condition.value, condition.low, condition.high))
            return _compare(value, low, symbol=">=") & _compare(value, high, symbol="<=")
        except Unfit:
            return np.array(self.plain.holds(condition), dtype=np.bool_)

    def _numbers(self, value: Value) -> Numbers:
        if value.type not in _NUMERIC:
            raise Unfit
        match value:
            case Constant():
                return _constant(value)
            case Field() | Key():
                return _read(self.plain.rows, value)
            case Arithmetic():
                return _arithmetic(self._numbers(value.left), self._numbers(value.right), node=value)
            case Apply(function="abs"):
                return _absolute(self._numbers(value.arguments[0]))
            case _:
                return _column(self.plain.values(value), value.type)


def _read(rows: LiveRows, value: Field | Key) -> Numbers:
    """A column of the batch, made once for all conditions."""
    name = value if isinstance(value, Key) else value.name
    known = rows.kept.get(name)
    if known is None:
        known = rows.kept[name] = _stored(rows, value)
    return known


def _stored(rows: LiveRows, value: Field | Key) -> Numbers:
    """A column of the batch; straight from its array where it is one."""
    if rows.whole is not None:
        return _read(rows.whole, value).at(rows.places)
    if isinstance(value, Key) or value.origin is not Origin.ROW or len(value.column) != 1:
        return _column(rows.of(value), value.type)
    name = value.column[0]
    column = rows.batch.get(name)
    if not is_column(column):
        return _column(rows.of(value), value.type)
    read = _column(column, value.type)
    if value.table == "Float32":
        read = Numbers(read.values.astype(np.float32).astype(np.float64), read.present)
    if value.absent is not None:
        read = read.where(read.values != value.absent)
    bit = rows.present_bit(name)
    return read if bit is None else read.where((_masks(rows) & np.uint64(bit)) != 0)


def _masks(rows: LiveRows) -> "NDArray[np.uint64]":
    """`present` of every row, made once."""
    known = rows.kept.get("present")
    if known is None:
        known = rows.kept["present"] = np.asarray(rows.masks, dtype=np.uint64)
    return known


@functools.lru_cache(maxsize=1024)
def _constant(value: Constant) -> Numbers:
    return _column([value.value], Type.FLOAT if isinstance(value.value, float) else Type.INTEGER)


def _column(column: Any, kind: Type) -> Numbers:
    """The values of a list or an array, in which None is a missing one."""
    wanted: Any = np.float64 if kind is Type.FLOAT else np.int64
    if isinstance(column, np.ndarray):
        if column.dtype.kind not in "iuf" or (column.dtype.kind == "u" and column.size and column.max() > 2**63 - 1):
            raise Unfit
        return Numbers(cast("Values", column.astype(wanted, copy=False)))
    try:
        values = np.array(column, dtype=wanted)
        missing = kind is Type.FLOAT and bool(np.isnan(values).any())
    except OverflowError:
        raise Unfit from None
    except TypeError:
        values, missing = _filled(column, wanted), True
    present = np.array([value is not None for value in column], dtype=np.bool_) if missing else None
    return Numbers(cast("Values", values), present)


def _filled(column: Any, wanted: Any) -> Any:
    try:
        return np.array([0 if value is None else value for value in column], dtype=wanted)
    except OverflowError:
        raise Unfit from None


def _both(left: Numbers, right: Numbers) -> "Truths | None":
    """Where both are there."""
    if left.present is None or right.present is None:
        return right.present if left.present is None else left.present
    return left.present & right.present


def _compare(left: Numbers, right: Numbers, *, symbol: str) -> "Truths":
    if left.is_float != right.is_float:
        near = left.floats == right.floats
        if (near & (np.abs(left.floats) >= _EXACT)).any():
            raise Unfit
    compared = _UFUNCS[symbol](left.values, right.values)
    if symbol == "!=" and (left.is_float or right.is_float):
        compared = compared & ~np.isnan(left.floats) & ~np.isnan(right.floats)
    present = _both(left, right)
    return compared if present is None else compared & present


def _arithmetic(left: Numbers, right: Numbers, *, node: Arithmetic) -> Numbers:
    present = _both(left, right)
    if node.operator in "/%":
        divides = right.values != 0
        right = Numbers(np.where(divides, right.values, 1))
        present = divides if present is None else present & divides
    if node.operator == "/" or left.is_float or right.is_float:
        result = _in_type(_of_floats(left.floats, right.floats, symbol=node.operator), node.type)
    else:
        result = _of_integers(left.values, right.values, symbol=node.operator)
    return result if present is None else result.where(present)


def _of_floats(left: Any, right: Any, *, symbol: str) -> Numbers:
    values = _UFUNCS[symbol](left, right)
    infinite = np.isinf(values)
    if not infinite.any():
        return Numbers(values)
    return Numbers(values, ~(infinite & np.isfinite(left) & np.isfinite(right)))


def _in_type(numbers: Numbers, wanted: Type) -> Numbers:
    """Floats as values of a type: whole units, half to even, within 64 bits."""
    if wanted is Type.FLOAT:
        return numbers
    fits = (numbers.values >= -(2.0**63)) & (numbers.values < 2.0**63)
    whole = np.rint(np.where(fits, numbers.values, 0.0)).astype(np.int64)
    return Numbers(whole, numbers.present).where(fits)


def _of_integers(left: Any, right: Any, *, symbol: str) -> Numbers:
    if symbol == "%":
        return Numbers(np.fmod(left, np.where(right == -1, 1, right)))
    bound = {"+": operator.add, "-": operator.add, "*": operator.mul}[symbol](_magnitude(left), _magnitude(right))
    if bound >= _SAFE_PRODUCT:
        raise Unfit
    return Numbers(_UFUNCS[symbol](left, right))


def _magnitude(values: Any) -> float:
    """The greatest distance from 0."""
    return float(np.abs(values.astype(np.float64)).max()) if values.size else 0.0


def _absolute(numbers: Numbers) -> Numbers:
    if not numbers.is_float and _magnitude(numbers.values) >= 2.0**63:
        raise Unfit
    return Numbers(cast("Values", np.abs(numbers.values)), numbers.present)
