"""Conditions on the rows of a batch without numpy: a list per node of the tree, None being a missing value.

This is the meaning; what numpy does faster is held against it.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from rankscope.tql.evaluate_columns import LiveRows
from rankscope.tql.evaluate_numbers import apply, arithmetic
from rankscope.tql.fields import Field, Type
from rankscope.tql.matching import matcher
from rankscope.tql.typed import (
    AllOf,
    AnyOf,
    Apply,
    Arithmetic,
    Between,
    Compare,
    Condition,
    Constant,
    Contains,
    Exists,
    FloatTest,
    History,
    Key,
    Matches,
    OneOf,
    Opposite,
    Truth,
    Value,
)

REMEMBERED_TEXTS = 4096
"""Texts of which a pattern's answer is kept: names recur at every step."""

LONGEST_REMEMBERED = 512
"""Letters of such a text: what is longer is no name, and four thousand of them would fill the memory."""


def _unequal(left: Any, right: Any) -> bool:
    """Unlike Python's: not of a NaN."""
    return left != right and left == left and right == right


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": _unequal,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TESTS: dict[str, Callable[[Any], bool]] = {"isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite}


class Plain:
    """Evaluates nodes on one batch.

    Attributes:
        rows: The batch.
        histories: What each history gave for the batch's rows, by the id of its node: equal ones would cost a hash.
    """

    def __init__(self, rows: LiveRows, histories: dict[int, list[Any]]) -> None:
        self.rows = rows
        self.histories = histories

    def holds(self, condition: Condition) -> list[bool]:
        """Of each row, whether the condition is true."""
        match condition:
            case AllOf():
                return self._joined(condition.operands, all, of_none=True)
            case AnyOf():
                return self._joined(condition.operands, any, of_none=False)
            case Opposite():
                return list(map(operator.not_, self.holds(condition.operand)))
            case Compare():
                return self._compare(condition)
            case Between():
                return self._between(condition)
            case _:
                return self._asked(condition)

    def values(self, value: Value) -> list[Any]:
        """The value in each row, None where it is missing."""
        match value:
            case Field() | Key():
                return self.rows.of(value)
            case Constant():
                return [constant(value)] * self.rows.count
            case Arithmetic():
                function, left, right = arithmetic(value), self.values(value.left), self.values(value.right)
                pairs = zip(left, right, strict=True)
                return [None if a is None or b is None else function(a, b) for a, b in pairs]
            case Apply():
                return self._apply(value)
            case History():
                return self.histories[id(value)]
            case _:
                raise TypeError(f"{value.name} is the output of a stage, which a row does not have")

    def _joined(self, operands: tuple[Condition, ...], join: Callable[..., bool], *, of_none: bool) -> list[bool]:
        if not operands:
            return [of_none] * self.rows.count
        return list(map(join, zip(*map(self.holds, operands), strict=True)))

    def _compare(self, condition: Compare) -> list[bool]:
        holds = _HOLDS[condition.operator]
        if isinstance(condition.right, Constant):
            right = constant(condition.right)
            return [value is not None and holds(value, right) for value in self.values(condition.left)]
        pairs = zip(self.values(condition.left), self.values(condition.right), strict=True)
        return [a is not None and b is not None and holds(a, b) for a, b in pairs]

    def _between(self, condition: Between) -> list[bool]:
        three = zip(*map(self.values, (condition.value, condition.low, condition.high)), strict=True)
        return [None not in (value, low, high) and low <= value <= high for value, low, high in three]

    def _asked(self, condition: OneOf | Matches | Contains | Exists | FloatTest | Truth) -> list[bool]:
        values = self.values(condition.value)
        match condition:
            case OneOf():
                choices = {constant(choice) for choice in condition.choices}
                return [value in choices for value in values]
            case Matches():
                matches = _remembering(condition.pattern)
                return [value is not None and matches(value) is not condition.is_opposite for value in values]
            case Contains():
                pairs = zip(values, self.values(condition.part), strict=True)
                return [value is not None and part is not None and part in value for value, part in pairs]
            case Exists():
                return [value is not None for value in values]
            case FloatTest():
                test = _TESTS[condition.question]
                return [value is not None and test(value) for value in values]
            case Truth():
                return [value is True for value in values]

    def _apply(self, value: Apply) -> list[Any]:
        rows = zip(*map(self.values, value.arguments), strict=True)
        if value.function == "coalesce":
            firsts = (next((one for one in row if one is not None), None) for row in rows)
            if value.type is not Type.FLOAT:
                return list(firsts)
            return [None if one is None else float(one) for one in firsts]
        function = apply(value)
        return [None if None in row else function(*row) for row in rows]


def constant(value: Constant) -> Any:
    """A constant as rows have its like: an id as an integer."""
    return int(str(value.value), 16) if value.type is Type.ID else value.value


@functools.lru_cache(maxsize=256)
def _remembering(pattern: str) -> Callable[[str], bool]:
    matches = matcher(pattern)
    remembered = functools.lru_cache(maxsize=REMEMBERED_TEXTS)(matches)
    return lambda text: remembered(text) if len(text) <= LONGEST_REMEMBERED else matches(text)
