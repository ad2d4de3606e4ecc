"""Functions that look back over the stored rows of a series: prev, delta, ema, robust_z."""

import dataclasses
from collections.abc import Callable, Sequence

from rankscope.tql import nodes
from rankscope.tql.arithmetic import is_constant, leaves, result_type
from rankscope.tql.errors import TqlTypeError
from rankscope.tql.fields import KEYED, NUMBERS, Field, Origin, Type
from rankscope.tql.formatting import format_value
from rankscope.tql.functions import MEASURES, check_count, whole, wrong_type
from rankscope.tql.naming import Names, Operand, as_number, described
from rankscope.tql.series import SERIES
from rankscope.tql.typed import Constant, History, Key, Value

_FULL_WINDOW = 64
_LEAST_WINDOW = 8
_LONGEST_MEAN = 10_000


def looked_back(node: nodes.Call, arguments: Sequence[Operand], *, names: Names) -> Operand:
    """The value of a function of a series.

    Raises:
        TqlTypeError: These rows are no series, or its arguments do not fit.
    """
    names.refuse_made(f"{node.function}()", node.place, hint="write the where with it before that stage")
    signature, least, most, make = _DECLARED[node.function]
    check_count(node, least, most=most, signature=signature)
    if names.entity not in SERIES:
        message = f"{node.function}() looks back in a series, and {names.entity} rows are none"
        raise _no_history(node, message, hint="ask it of tensor., span., scalar., collective. or system. rows")
    argument = as_number(arguments[0])
    if is_constant(argument.value) or not all(_is_stored(leaf) for leaf in leaves(argument.value)):
        message = f"{node.function}() looks back over stored rows, and {argument.like.name} is not stored in them"
        raise _no_history(node, message, hint="give it a column of the row, as in prev(tensor.l2)")
    return make(node, argument, names)


def _no_history(node: nodes.Call, message: str, *, hint: str) -> TqlTypeError:
    return TqlTypeError("no_history", message, place=node.place, hint=hint)


def _is_stored(leaf: Value) -> bool:
    match leaf:
        case Constant():
            return True
        case Field():
            return leaf.origin is Origin.ROW and leaf.type is not Type.LIST
        case Key():
            return KEYED[leaf.scope][1] is Origin.ROW
        case _:
            return False


def _prev(node: nodes.Call, argument: Operand, _names: Names, /) -> Operand:
    like = dataclasses.replace(argument.like, name=format_value(node))
    return Operand(History("prev", argument.value, argument.type), like)


def _delta(node: nodes.Call, argument: Operand, names: Names, /) -> Operand:
    result = result_type("-", argument.type, argument.type)
    if result is None:
        raise wrong_type(node, argument, wanted="a number, a duration or a time")
    like = described(format_value(node), result, names.entity)
    return Operand(History("delta", argument.value, result), like)


def _ema(node: nodes.Call, argument: Operand, names: Names, /) -> Operand:
    if argument.type not in MEASURES:
        raise wrong_type(node, argument, wanted="a number or a duration")
    count = whole(node, 1, low=1, high=_LONGEST_MEAN, signature="ema(x, 10)")
    result = Type.FLOAT if argument.type in NUMBERS else argument.type
    return Operand(History("ema", argument.value, result, count), described(format_value(node), result, names.entity))


def _robust_z(node: nodes.Call, argument: Operand, names: Names, /) -> Operand:
    if argument.type not in MEASURES:
        raise wrong_type(node, argument, wanted="a number or a duration")
    count = _FULL_WINDOW
    if len(node.arguments) > 1:
        count = whole(node, 1, low=_LEAST_WINDOW, high=_FULL_WINDOW, signature="robust_z(x, 64)")
    like = described(format_value(node), Type.FLOAT, names.entity)
    return Operand(History("robust_z", argument.value, Type.FLOAT, count), like)


Make = Callable[[nodes.Call, Operand, Names], Operand]
"""Types a call of a value that is stored."""

_DECLARED: dict[str, tuple[str, int, int, Make]] = {
    "prev": ("prev(x)", 1, 1, _prev),
    "delta": ("delta(x)", 1, 1, _delta),
    "ema": ("ema(x, 10)", 2, 2, _ema),
    "robust_z": ("robust_z(x, 64)", 1, 2, _robust_z),
}

HISTORIES = tuple(_DECLARED)
"""Every function that looks back."""
