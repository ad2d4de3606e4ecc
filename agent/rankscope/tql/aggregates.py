"""Aggregates: how many values each takes, of which types, and what one number of many rows is called."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

from rankscope.tql import nodes
from rankscope.tql.errors import TqlTypeError
from rankscope.tql.fields import FIELDS, NUMBERS, Type
from rankscope.tql.formatting import format_value
from rankscope.tql.functions import FUNCTIONS, MEASURES, check_count, whole, wrong_type
from rankscope.tql.history import HISTORIES
from rankscope.tql.literals import Signed, literal_of, type_of
from rankscope.tql.naming import Names, Operand, as_number, described
from rankscope.tql.nearest import nearest_of
from rankscope.tql.typed import Every, Reduced
from rankscope.tql.values import field_or_value
from rankscope.tql.words import ACROSS, AGGREGATES, DURATIONS

_MOST_STRETCHES = 1000
_LONGEST = 2**63 - 1
_PERCENTILES = ("p50", "p90", "p95", "p99")


@dataclasses.dataclass(frozen=True, slots=True)
class Reduction:
    """A typed call whose name is not decided yet.

    Attributes:
        call: As written.
        arguments: Its values.
        result: A field that holds such results.
        parameter: The number among its arguments.
    """

    call: nodes.Call
    arguments: tuple[Operand, ...]
    result: Operand
    parameter: float | None = None


def reduction(call: nodes.Call, names: Names) -> Reduction:
    """One number of many rows, typed.

    Raises:
        TqlTypeError: There is no such aggregate, or its values do not fit.
        TqlUnsupported: It names what no row can have.
    """
    if call.function not in _DECLARED:
        raise unknown_reduction(call, AGGREGATES, what="aggregate")
    signature, count, make = _DECLARED[call.function]
    check_count(call, count, most=count, signature=signature)
    return make(call, names)


def unknown_reduction(call: nodes.Call, known: Sequence[str], *, what: str) -> TqlTypeError:
    """The error of a function that is none of the known ones; what it is instead is the hint."""
    message = f"there is no {what} {call.function}()"
    if what == "aggregate" and call.function in ACROSS:
        hint = f"it compares ranks: write | across rank: {call.function}(..)"
    elif call.function in {*FUNCTIONS, *HISTORIES}:
        hint = f"it is of one row: write | select {call.function}(..)"
    elif call.function in AGGREGATES:
        hint = f"it is no comparison: write | {call.function}(..) by rank"
    else:
        near = nearest_of(call.function, known)
        hint = f"did you mean {near}()?" if near else ""
    return TqlTypeError(f"unknown_{what}", message, place=call.place, expected=tuple(known), hint=hint)


def result_of(call: nodes.Call, kind: Type, names: Names, /) -> Operand:
    """A result of a type, without a range of its own."""
    like = described(format_value(call), kind, names.entity)
    return Operand(like, like)


def argument(call: nodes.Call, names: Names, *, of: set[Type], wanted: str) -> Operand:
    """The first argument, read as a number where it may be one.

    Raises:
        TqlTypeError: It is of none of these types.
    """
    found = as_number(field_or_value(call.arguments[0], names))
    if found.type not in of:
        raise wrong_type(call, found, wanted=wanted)
    return found


def anything(call: nodes.Call, names: Names) -> Operand:
    """The first argument, of any type but a list.

    Raises:
        TqlTypeError: It is a list.
    """
    found = field_or_value(call.arguments[0], names)
    if found.type is Type.LIST:
        raise wrong_type(call, found, wanted="a single value")
    return found


def averaged(kind: Type) -> Type:
    """What lies between two values of a type."""
    return Type.FLOAT if kind in NUMBERS else kind


def _count(call: nodes.Call, names: Names) -> Reduction:
    return Reduction(call, (), result_of(call, Type.INTEGER, names))


def _rate(call: nodes.Call, names: Names) -> Reduction:
    names.refuse_made("rate()", call.place, hint="write it before that stage")
    return Reduction(call, (), result_of(call, Type.FLOAT, names))


def _distinct(call: nodes.Call, names: Names) -> Reduction:
    return Reduction(call, (anything(call, names),), result_of(call, Type.INTEGER, names))


def _sum(call: nodes.Call, names: Names) -> Reduction:
    value = argument(call, names, of=MEASURES, wanted="a number or a duration")
    return Reduction(call, (value,), result_of(call, value.type, names))


def _average(call: nodes.Call, names: Names) -> Reduction:
    value = argument(call, names, of=MEASURES, wanted="a number or a duration")
    return Reduction(call, (value,), result_of(call, averaged(value.type), names))


def _quantile(call: nodes.Call, names: Names) -> Reduction:
    value = argument(call, names, of=MEASURES, wanted="a number or a duration")
    share = _number(call, 1)
    if share is None or not 0 <= share <= 1:
        message = f"{format_value(call.arguments[1])} is no quantile"
        expected, hint = ("a number from 0 to 1",), "write quantile(x, 0.95)"
        raise TqlTypeError("out_of_range", message, place=call.arguments[1].place, expected=expected, hint=hint)
    return Reduction(call, (value,), result_of(call, averaged(value.type), names), share)


def _number(call: nodes.Call, index: int) -> float | None:
    literal = literal_of(call.arguments[index])
    if isinstance(literal, Signed) and type_of(literal) in NUMBERS:
        return float(literal.exact)
    return None


def positive(call: nodes.Call, index: int, *, signature: str) -> float:
    """The argument of a call that must be a number above 0 as it stands.

    Raises:
        TqlTypeError: It is none.
    """
    found = _number(call, index)
    if found is None or not 0 < found < float("inf"):
        message = f"{format_value(call.arguments[index])} does not fit in {call.function}()"
        place, hint = call.arguments[index].place, f"write {signature}"
        raise TqlTypeError("out_of_range", message, place=place, expected=("a number above 0",), hint=hint)
    return found


def _extreme(call: nodes.Call, names: Names) -> Reduction:
    of = {*MEASURES, Type.TIME, Type.STRING}
    value = argument(call, names, of=of, wanted="a number, a duration, a time or a text")
    return Reduction(call, (value,), value)


def _end(call: nodes.Call, names: Names) -> Reduction:
    names.refuse_made(f"{call.function}()", call.place, hint="write it before that stage")
    value = anything(call, names)
    return Reduction(call, (value,), value)


def _histogram(call: nodes.Call, names: Names) -> Reduction:
    value = argument(call, names, of=MEASURES, wanted="a number or a duration")
    count = whole(call, 1, low=1, high=_MOST_STRETCHES, signature="histogram(x, 20)")
    return Reduction(call, (value,), result_of(call, Type.LIST, names), count)


Make = Callable[[nodes.Call, Names], Reduction]
"""Types a call whose number of arguments is right."""

_DECLARED: dict[str, tuple[str, int, Make]] = {
    "count": ("count()", 0, _count),
    "sum": ("sum(x)", 1, _sum),
    "avg": ("avg(x)", 1, _average),
    "min": ("min(x)", 1, _extreme),
    "max": ("max(x)", 1, _extreme),
    **{name: (f"{name}(x)", 1, _average) for name in _PERCENTILES},
    "quantile": ("quantile(x, 0.95)", 2, _quantile),
    "stddev": ("stddev(x)", 1, _average),
    "first": ("first(x)", 1, _end),
    "last": ("last(x)", 1, _end),
    "distinct": ("distinct(x)", 1, _distinct),
    "rate": ("rate()", 0, _rate),
    "histogram": ("histogram(x, 20)", 2, _histogram),
}


def reduced(found: Sequence[Reduction]) -> tuple[Reduced, ...]:
    """The calls of a stage under their names: the function's, or the whole call's where a function stands twice."""
    times = Counter(one.call.function for one in found)
    return tuple(
        Reduced(
            one.call.function if times[one.call.function] == 1 else format_value(one.call),
            one.call.function,
            tuple(argument.value for argument in one.arguments),
            Type.STRING if one.result.type is Type.ATTRIBUTE else one.result.type,
            one.parameter,
        )
        for one in found
    )


def every(written: nodes.Every, names: Names) -> tuple[Every, tuple[str, Operand]]:
    """Stretches to group by, and the column that says where one begins.

    Raises:
        TqlTypeError: The size is none, or the rows have no step.
    """
    names.refuse_made("every", written.place, hint="write it before that stage")
    name = "step" if written.in_steps else "time"
    column = FIELDS[name].get(names.entity)
    if column is None:
        message = f"{names.entity} rows have no step"
        raise TqlTypeError("foreign_field", message, place=written.place, expected=("every 30s",), hint="write a time")
    return Every(_stretch(written), written.in_steps), (name, Operand(column, column))


def _stretch(written: nodes.Every) -> int:
    literal = Signed(written.size, negative=False, place=written.size.place)
    is_time = written.size.unit in DURATIONS
    fits = is_time if not written.in_steps else type_of(literal) is Type.INTEGER
    if fits and 1 <= literal.exact <= _LONGEST and literal.exact == literal.exact.to_integral_value():
        return int(literal.exact)
    message = f"{format_value(written.size)}{' steps' if written.in_steps else ''} is no stretch to group by"
    expected, hint = ("steps", "a time"), "write every 10 steps, or a time with its unit, as in every 30s"
    raise TqlTypeError("out_of_range", message, place=written.place, expected=expected, hint=hint)
