"""Functions of one row: how many values they take, of which types, and what they give."""

import dataclasses
from collections.abc import Callable, Sequence

from rankscope.tql import nodes
from rankscope.tql.arithmetic import AMOUNTS, result_type
from rankscope.tql.errors import TqlTypeError
from rankscope.tql.fields import NUMBERS, Field, Type
from rankscope.tql.formatting import format_value
from rankscope.tql.literals import Signed, constant, literal_of, type_of, with_article
from rankscope.tql.naming import Names, Operand, as_number, described, narrowed
from rankscope.tql.nearest import nearest_of
from rankscope.tql.typed import Apply
from rankscope.tql.words import ACROSS, AGGREGATES, Function

MEASURES = NUMBERS | AMOUNTS
"""Types that can be averaged."""

_COMPARED = {*MEASURES, Type.TIME}
_MOST = 64


def applied(node: nodes.Call, arguments: Sequence[Operand], *, names: Names) -> Operand:
    """The value of a function.

    Raises:
        TqlTypeError: Its arguments do not fit.
    """
    _, least, most, make = _DECLARED[node.function]
    check_count(node, least, most=most, signature=signature(node.function))
    return make(node, arguments, names)


def check_count(node: nodes.Call, least: int, *, most: int, signature: str) -> None:
    """Raise unless a call has so many arguments.

    Raises:
        TqlTypeError: It has fewer or more.
    """
    given = len(node.arguments)
    if not least <= given <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        message = f"{node.function}() takes {wanted} {'value' if most == 1 else 'values'}, here are {given}"
        hint = f"write {signature}"
        raise TqlTypeError("bad_arguments", message, place=node.place, expected=(signature,), hint=hint)


def signature(function: str) -> str:
    """How a function is called."""
    return _DECLARED[function][0]


def refuse_unknown_function(node: nodes.Call, names: Names, *, known: tuple[str, ...]) -> TqlTypeError:
    """The error of a call that is none of the known functions, and no column made before."""
    if not names.is_of_rows:
        message = f"{format_value(node)} is no column behind the stages before"
        hint = "name one of them, or compute it in the stage before"
        return TqlTypeError("unknown_field", message, place=node.place, expected=names.shown, hint=hint)
    message, hint = f"there is no function {node.function}() of one row", _hint(node.function, known)
    return TqlTypeError("unknown_function", message, place=node.place, expected=known, hint=hint)


def _hint(function: str, known: tuple[str, ...]) -> str:
    """What to write for a function that is none: some stand elsewhere."""
    if function in AGGREGATES:
        return f"it is of many rows: write it behind |, as in | {function}(..) by rank"
    if function in ACROSS:
        return f"it compares ranks: write | across rank: {function}(..)"
    near = nearest_of(function, known)
    return f"did you mean {near}()?" if near else "aggregates stand behind |, as in | count() by rank"


def wrong_type(node: nodes.Call, argument: Operand, *, wanted: str) -> TqlTypeError:
    """The error of an argument that is of another type."""
    message = f"{node.function}() takes {wanted}, {argument.like.name} is {with_article(argument.type)}"
    return TqlTypeError("type_mismatch", message, place=node.place, expected=(wanted,), hint=f"give it {wanted}")


def whole(node: nodes.Call, index: int, *, low: int, high: int, signature: str) -> int:
    """The argument of a call that must be a whole number as it stands.

    Raises:
        TqlTypeError: It is none, or out of range.
    """
    argument = node.arguments[index]
    literal = literal_of(argument)
    if isinstance(literal, Signed) and type_of(literal) is Type.INTEGER and low <= literal.exact <= high:
        return int(literal.exact)
    message = f"{format_value(argument)} does not fit in {node.function}()"
    expected, hint = (f"a whole number from {low} to {high}",), f"write {signature}"
    raise TqlTypeError("out_of_range", message, place=argument.place, expected=expected, hint=hint)


def _of_number(node: nodes.Call, arguments: Sequence[Operand], names: Names, /) -> Operand:
    argument = as_number(arguments[0])
    if argument.type not in NUMBERS:
        raise wrong_type(node, argument, wanted="a number")
    value = Apply(_BY_NAME[node.function], (argument.value,), Type.FLOAT)
    return Operand(value, described(format_value(node), Type.FLOAT, names.entity))


def _abs(node: nodes.Call, arguments: Sequence[Operand], _names: Names, /) -> Operand:
    argument = as_number(arguments[0])
    if argument.type not in MEASURES:
        raise wrong_type(node, argument, wanted="a number or a duration")
    like = dataclasses.replace(argument.like, name=format_value(node), low=0, absent=None)
    return Operand(Apply("abs", (argument.value,), argument.type), like)


def _ratio(node: nodes.Call, arguments: Sequence[Operand], names: Names, /) -> Operand:
    left, right = (as_number(argument) for argument in arguments)
    if result_type("/", left.type, right.type) is not Type.FLOAT:
        wrong = left if left.type not in NUMBERS else right
        raise wrong_type(node, wrong, wanted="two numbers, or two durations")
    like = described(format_value(node), Type.FLOAT, names.entity)
    return Operand(Apply("ratio", (left.value, right.value), Type.FLOAT), like)


def _extreme(node: nodes.Call, arguments: Sequence[Operand], names: Names, /) -> Operand:
    bound = [as_number(argument) for argument in _bound(node, arguments)]
    for argument in bound:
        if argument.type not in _COMPARED:
            raise wrong_type(node, argument, wanted="numbers, durations or times")
    return _of_several(node, bound, names=names, mixed=NUMBERS)


def _coalesce(node: nodes.Call, arguments: Sequence[Operand], names: Names, /) -> Operand:
    return _of_several(node, _bound(node, arguments), names=names, mixed=set())


def _bound(node: nodes.Call, arguments: Sequence[Operand]) -> list[Operand]:
    """The arguments, literals among them read as what the first other argument is."""
    literals = [literal_of(argument) for argument in node.arguments]
    others = [argument for argument, literal in zip(arguments, literals, strict=True) if literal is None]
    kinds = {argument.type for argument in others} | {type_of(literal) for literal in literals if literal is not None}
    kind = Type.FLOAT if NUMBERS & kinds else Type.STRING
    if not others:
        return list(arguments)
    first = narrowed(others[0], kind)
    return [
        narrowed(argument, kind) if literal is None else Operand(constant(literal, first.subject), first.like)
        for argument, literal in zip(arguments, literals, strict=True)
    ]


def _of_several(node: nodes.Call, arguments: list[Operand], *, names: Names, mixed: set[Type]) -> Operand:
    kinds = {argument.type for argument in arguments}
    if not (len(kinds) == 1 or kinds <= mixed) or len({argument.like.vocabulary for argument in arguments}) > 1:
        shown = ", ".join(f"{argument.like.name} is {with_article(argument.type)}" for argument in arguments)
        message = f"{node.function}() takes values of one type, but {shown}"
        expected, hint = ("values of one type",), "make them one type, as in rank * 1.0"
        raise TqlTypeError("type_mismatch", message, place=node.place, expected=expected, hint=hint)
    result = arguments[0].type if len(kinds) == 1 else Type.FLOAT
    value = Apply(_BY_NAME[node.function], tuple(argument.value for argument in arguments), result)
    return Operand(value, _like_all(format_value(node), arguments, result=result, names=names))


def _like_all(name: str, arguments: list[Operand], *, result: Type, names: Names) -> Field:
    shapes = {(one.like.table, one.like.low, one.like.high, one.like.absent) for one in arguments}
    if len(shapes) == 1:
        return dataclasses.replace(arguments[0].like, name=name)
    return described(name, result, names.entity)


Make = Callable[[nodes.Call, Sequence[Operand], Names], Operand]
"""Types a call whose number of arguments is right."""

_DECLARED: dict[str, tuple[str, int, int, Make]] = {
    "abs": ("abs(x)", 1, 1, _abs),
    "min": ("min(a, b)", 2, _MOST, _extreme),
    "max": ("max(a, b)", 2, _MOST, _extreme),
    "sqrt": ("sqrt(x)", 1, 1, _of_number),
    "log2": ("log2(x)", 1, 1, _of_number),
    "log10": ("log10(x)", 1, 1, _of_number),
    "ratio": ("ratio(a, b)", 2, 2, _ratio),
    "coalesce": ("coalesce(a, b)", 2, _MOST, _coalesce),
}

_BY_NAME: dict[str, Function] = {
    "abs": "abs",
    "min": "min",
    "max": "max",
    "sqrt": "sqrt",
    "log2": "log2",
    "log10": "log10",
    "ratio": "ratio",
    "coalesce": "coalesce",
}

FUNCTIONS = tuple(_DECLARED)
"""Every function of one row."""
