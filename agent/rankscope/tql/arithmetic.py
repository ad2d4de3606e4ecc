"""Arithmetic has a type: numbers with numbers, durations with durations, times apart by durations."""

import dataclasses

from rankscope.tql import nodes
from rankscope.tql.errors import TqlTypeError
from rankscope.tql.fields import NUMBERS, Type
from rankscope.tql.formatting import format_value
from rankscope.tql.literals import constant, literal_of, with_article
from rankscope.tql.naming import Names, Operand, as_number, described
from rankscope.tql.typed import Apply, Arithmetic, Constant, Value
from rankscope.tql.words import Operator

AMOUNTS = {Type.DURATION, Type.SIZE}
"""Types of amounts with a unit: they add to their own kind and scale with numbers."""

_OF_AMOUNTS = {"+", "-", "%"}
_VERBS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "divide"}
_OPERATORS: dict[str, Operator] = {"+": "+", "-": "-", "*": "*", "/": "/", "%": "%"}
_TIMES = {
    (Type.TIME, "-", Type.TIME): Type.DURATION,
    (Type.TIME, "-", Type.DURATION): Type.TIME,
    (Type.TIME, "+", Type.DURATION): Type.TIME,
    (Type.DURATION, "+", Type.TIME): Type.TIME,
}


def leaves(value: Value) -> list[Value]:
    """The fields, keys, constants, outputs and histories that a value is computed of."""
    match value:
        case Arithmetic():
            return [*leaves(value.left), *leaves(value.right)]
        case Apply():
            return [leaf for argument in value.arguments for leaf in leaves(argument)]
        case _:
            return [value]


def is_constant(value: Value) -> bool:
    """Whether it is the same in every row."""
    return all(isinstance(leaf, Constant) for leaf in leaves(value))


def result_type(operator: str, left: Type, right: Type, /) -> Type | None:
    """What `+ - * / %` of two types is; None where they do not go together."""
    if left in NUMBERS and right in NUMBERS:
        return Type.INTEGER if {left, right} == {Type.INTEGER} and operator != "/" else Type.FLOAT
    if left in AMOUNTS and left is right:
        return left if operator in _OF_AMOUNTS else {"/": Type.FLOAT}.get(operator)
    if left in AMOUNTS and right in NUMBERS:
        return left if operator in {"*", "/"} else None
    if left in NUMBERS and right in AMOUNTS:
        return right if operator == "*" else None
    return _TIMES.get((left, operator, right))


def computed(node: nodes.Arithmetic, left: Operand, right: Operand, /, *, names: Names) -> Operand:
    """Two values joined.

    Raises:
        TqlTypeError: They do not go together.
    """
    left, right = as_number(left), as_number(right)
    left, right = _as_time(node.left, left, beside=right), _as_time(node.right, right, beside=left)
    result = result_type(node.operator, left.type, right.type)
    if result is None:
        raise _mismatch(node, left, right=right)
    like = described(format_value(node), result, names.entity)
    return Operand(Arithmetic(_OPERATORS[node.operator], left.value, right.value, result), like)


def _as_time(node: nodes.Value, side: Operand, *, beside: Operand) -> Operand:
    """A text beside a time is a time."""
    literal = literal_of(node)
    if not isinstance(literal, nodes.Text) or beside.type is not Type.TIME:
        return side
    return Operand(constant(literal, beside.subject), dataclasses.replace(beside.like, name=format_value(node)))


def negated(node: nodes.Negate, inner: Operand, *, names: Names) -> Operand:
    """The opposite of a value.

    Raises:
        TqlTypeError: It is no number and no amount.
    """
    inner = as_number(inner)
    if inner.type not in NUMBERS | AMOUNTS:
        message = f"{inner.like.name} is {with_article(inner.type)}: it has no opposite"
        expected, hint = ("a number", "a duration"), "take the difference of two times instead"
        raise TqlTypeError("type_mismatch", message, place=node.place, expected=expected, hint=hint)
    value = Arithmetic("*", inner.value, Constant(-1, Type.INTEGER, "Int64"), inner.type)
    return Operand(value, described(format_value(node), inner.type, names.entity))


def _mismatch(node: nodes.Arithmetic, left: Operand, *, right: Operand) -> TqlTypeError:
    names = f"{left.like.name} is {with_article(left.type)}, {right.like.name} is {with_article(right.type)}"
    message = f"{names}: they do not {_VERBS[node.operator]}"
    hint = _hint(node.operator, {left.type, right.type})
    return TqlTypeError("type_mismatch", message, place=node.place, hint=hint)


def _hint(operator: str, kinds: set[Type]) -> str:
    if not kinds & AMOUNTS:
        return "compute with numbers, durations and sizes"
    if operator in _OF_AMOUNTS and kinds & NUMBERS:
        return "write a unit, as in 5ms"
    return "multiply and divide by plain numbers, add and subtract what has the same unit"
