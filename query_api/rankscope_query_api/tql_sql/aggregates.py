"""One number of many rows, as SQL: what a grouped SELECT computes, and what is made of it behind.

Missing values and NaN are passed over by being NULL; of no value an aggregate is NULL, but count, sum and distinct
are 0. Whatever 64 bits cannot hold is computed in 128 and looked at before it is let out, and integers are summed as
integers: the sum of floats depends on the order in which threads meet, and an answer must not.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import FIELDS, Type
from rankscope.tql.typed import Reduced
from rankscope_query_api.tql_sql.expressions import call, column, number, one_spelling
from rankscope_query_api.tql_sql.order import SortKey
from rankscope_query_api.tql_sql.parameters import Parameters
from rankscope_query_api.tql_sql.scope import Scope, Source
from rankscope_query_api.tql_sql.sources import source

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

WHOLE = {Type.DURATION, Type.SIZE, Type.TIME}
"""Types whose averages are rounded to whole ns and bytes, half to even."""

_SMALL = {"UInt8", "UInt16", "UInt32", "Int32"}
"""Sums of these fit 64 bits for any number of rows."""

_BOUNDS = {"UInt64": (0, 2**64 - 1), "Int64": (-(2**63), 2**63 - 1)}

_MOST = "1.7976931348623157e308"
"""The greatest finite float."""

_GREATEST_FLOAT = "9223372036854774784.0"
"""The greatest float that 64 bits hold as an integer: the mean of great ones is rounded up beyond."""

_A_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Call:
    """An aggregate and its argument.

    Attributes:
        reduced: The aggregate.
        side: The argument as a row has it.
        value: The argument, NULL where it is passed over.
        parameters: Where values are bound.
    """

    reduced: Reduced
    side: Source
    value: Expr
    parameters: Parameters

    @property
    def floats(self) -> Expr:
        """The argument as a 64-bit float."""
        return as_float(self.value, self.side)


@dataclass(frozen=True, slots=True)
class Made:
    """A column that a stage makes.

    Attributes:
        inside: What the grouped SELECT computes, by column; the first is the value where `behind` is none.
        table: ClickHouse type of the value, without Nullable.
        is_nullable: Whether it can be NULL.
        is_float: Whether it can be NaN.
        behind: Makes the value of the columns of `inside`, in a SELECT around it; None: it is one already.
    """

    inside: tuple[Expr, ...]
    table: str
    is_nullable: bool = True
    is_float: bool = False
    behind: Callable[[Sequence[Expr]], Expr] | None = None


def output_of(made: Made, names: Sequence[str]) -> Source:
    """The column as a value of the stages behind.

    Args:
        made: The column.
        names: What the columns of `inside` are called.
    """
    columns = [column(name) for name in names]
    value = columns[0] if made.behind is None else made.behind(columns)
    present = call("isNotNull", value.copy()) if made.is_nullable else None
    return Source(value, present, nullable=made.is_nullable, absent=None, is_float=made.is_float, table=made.table)


def reduced(asked: Reduced, scope: Scope, *, rows: Scope, order: Sequence[SortKey]) -> Made:
    """An aggregate over rows.

    Args:
        asked: Which, and of what.
        scope: Where its argument is read.
        rows: Where the rows' own fields are read.
        order: The total order of the rows, for first and last.
    """
    if asked.function == "count":
        return Made((call("count"),), "UInt64", is_nullable=False)
    if asked.function == "rate":
        return Made((_rate(rows),), "Float64", is_float=True)
    side = source(asked.arguments[0], scope)
    value = countable(side)
    if asked.function in {"first", "last"}:
        picked = call("argMin" if asked.function == "first" else "argMax", value, _place(order))
        return Made((picked,), side.table, is_float=side.is_float)
    return _REDUCERS[asked.function](_Call(asked, side, value, scope.parameters))


def countable(side: Source) -> Expr:
    """A value that is NULL where it is missing or NaN, so that aggregates pass it over; also where none ever is.

    Of no rows an aggregate of what cannot be NULL is 0 or NaN.
    """
    value = side.or_null
    if side.is_float:
        return call("if", call("isNaN", value.copy()), exp.null(), value)
    return value if side.present is not None else call("toNullable", value)


def as_float(value: Expr, side: Source) -> Expr:
    """The value as a 64-bit float."""
    return value if side.table == "Float64" else call("toFloat64", value)


def _between(share: Expr, asked: _Call) -> Expr:
    """The value below which a share of the values lies, linear between the two nearest.

    `quantileExactInclusive` subtracts the one from the other: of two infinities it made NaN, so that
    `where p99 > 100` left out just what had exploded. It is given the greatest floats in place of infinities, and
    counts say where those lie; the place is computed as it does. What is infinite of finite values is missing.
    """
    floats = asked.floats
    if not asked.side.is_float:
        return _quantile_of(share, floats)
    great = call("multiIf", _beyond(floats, 1), number_of(_MOST), _beyond(floats, -1), number_of(f"-{_MOST}"), floats)
    found = _quantile_of(share.copy(), great)
    count = call("count", floats.copy())
    less = exp.Paren(this=exp.Sub(this=count.copy(), expression=number(1)))
    place = exp.Paren(this=exp.Add(this=exp.Mul(this=share.copy(), expression=less), expression=number(1)))
    low = call("floor", place.copy())
    high = exp.Paren(
        this=exp.Add(this=low.copy(), expression=exp.Paren(this=exp.GT(this=place, expression=low.copy())))
    )
    below = call("countIf", _beyond(floats, -1))
    finite = exp.Paren(this=exp.Sub(this=count.copy(), expression=call("countIf", _beyond(floats, 1))))
    is_low, is_high = exp.LTE(this=low, expression=below), exp.GT(this=high, expression=finite)
    cases: list[tuple[Expr, Expr]] = [
        (exp.EQ(this=count, expression=number(0)), exp.null()),
        (exp.And(this=is_low.copy(), expression=is_high.copy()), exp.null()),
        (is_low, infinite(-1)),
        (is_high, infinite(1)),
        (call("isFinite", found), found.copy()),
    ]
    return call("multiIf", *(part for case in cases for part in case), exp.null())


def _quantile_of(share: Expr, value: Expr) -> Expr:
    return exp.ParameterizedAgg(this="quantileExactInclusive", expressions=[share], params=[value.copy()])


def _beyond(value: Expr, sign: int) -> Expr:
    """True of the infinity of a sign."""
    if sign > 0:
        return exp.GT(this=value.copy(), expression=number_of(_MOST))
    return exp.LT(this=value.copy(), expression=number_of(f"-{_MOST}"))


def number_of(digits: str) -> Expr:
    """A float constant of the compiler's own."""
    return exp.Neg(this=exp.Literal.number(digits[1:])) if digits[0] == "-" else exp.Literal.number(digits)


def infinite(sign: int) -> Expr:
    """The infinity of a sign."""
    return exp.Div(this=number(sign), expression=number(0))


def finite(value: Expr) -> Expr:
    """A float, NULL where it is infinite or NaN."""
    return call("if", call("isFinite", value.copy()), value, exp.null())


def rounded(value: Expr, kind: Type) -> Expr:
    """A float as what the output is: durations, sizes and times in whole units, half to even."""
    if kind not in WHOLE:
        return value
    whole = call("least", call("round", value.copy()), exp.Literal.number(_GREATEST_FLOAT))
    return call("toInt64", call("if", call("isFinite", value), whole, exp.null()))  # of NaN there is no integer


def made_float(value: Expr, kind: Type) -> Made:
    """A float, or what is rounded from one."""
    is_whole = kind in WHOLE
    return Made((rounded(value, kind),), "Int64" if is_whole else "Float64", is_float=not is_whole)


def within(value: Expr, table: str) -> Expr:
    """A 128-bit integer as a 64-bit one, NULL where it does not fit."""
    low, high = _BOUNDS[table]
    fits = exp.Between(this=value.copy(), low=number(low), high=number(high))
    return call("if", fits, call(f"to{table}", value.copy()), exp.null())


def wide(value: Expr) -> Expr:
    """An integer of 128 bits."""
    return call("toInt128", value)


def _place(order: Sequence[SortKey]) -> Expr:
    """Where a row stands in the total order, as one value."""
    return call("tuple", *(key.value.copy() for key in order)) if len(order) > 1 else order[0].value.copy()


def _rate(rows: Scope) -> Expr:
    time = source(FIELDS["time"][rows.entity], rows).or_null
    passed = exp.Paren(this=exp.Sub(this=call("max", time.copy()), expression=call("min", time.copy())))
    seconds = exp.Div(this=call("nullIf", passed, number(0)), expression=number(_A_SECOND))
    return exp.Div(this=call("count"), expression=exp.Paren(this=seconds))


def _sum(asked: _Call) -> Made:
    if asked.side.is_float:
        return Made((_finite_sum("sum", asked.floats),), "Float64", is_float=True)
    if asked.side.table in _SMALL:
        table = "UInt64" if asked.side.table.startswith("U") else "Int64"
        return Made((call("ifNull", call("sum", asked.value), number(0)),), table, is_nullable=False)
    table = "UInt64" if asked.side.table == "UInt64" else "Int64"
    total = call("ifNull", call("sum", wide(asked.value)), number(0))
    return Made((within(total, table),), table)


def _finite_sum(function: str, value: Expr) -> Expr:
    """A sum or mean of floats, NULL where finite ones overflow."""
    total = call(function, value.copy())
    if function == "sum":
        total = call("ifNull", total, number(0))
    infinite = call("countIf", call("isInfinite", value.copy()))
    overflown = exp.And(this=call("isInfinite", total.copy()), expression=exp.EQ(this=infinite, expression=number(0)))
    return call("if", overflown, exp.null(), total)


def _avg(asked: _Call) -> Made:
    if asked.side.is_float:
        return Made((_finite_sum("avg", asked.floats),), "Float64", is_float=True)
    total = call("toFloat64", call("sum", wide(asked.value)))
    return made_float(exp.Div(this=total, expression=call("count", asked.value.copy())), asked.reduced.type)


def _extreme(asked: _Call) -> Made:
    return Made((call(asked.reduced.function, asked.value),), asked.side.table, is_float=asked.side.is_float)


def _percentile(asked: _Call) -> Made:
    share = exp.Literal.number(repr(PERCENTILES[asked.reduced.function]))
    return made_float(_between(share, asked), asked.reduced.type)


def _quantile(asked: _Call) -> Made:
    share = asked.parameters.bind(float(asked.reduced.parameter or 0), "Float64")
    return made_float(_between(share, asked), asked.reduced.type)


def _stddev(asked: _Call) -> Made:
    deviation = finite(call("stddevPopStable", asked.floats))
    if asked.side.is_float:  # of one infinity it is 0
        infinities = call("countIf", call("isInfinite", asked.floats))
        deviation = call("if", exp.EQ(this=infinities, expression=number(0)), deviation, exp.null())
    return made_float(deviation, asked.reduced.type)


def _distinct(asked: _Call) -> Made:
    value = one_spelling(asked.value) if asked.side.is_float else asked.value
    return Made((call("uniqExact", value),), "UInt64", is_nullable=False)


def _histogram(asked: _Call) -> Made:
    floats = asked.floats
    kept = call("groupArrayIf", floats.copy(), call("isFinite", floats.copy()))  # NULL is not finite
    behind = functools.partial(_counts, stretches=number(int(asked.reduced.parameter or 1)))
    return Made((kept,), "Array(UInt64)", is_nullable=False, behind=behind)


def _counts(inside: Sequence[Expr], *, stretches: Expr) -> Expr:
    """How many values lie in each of some equal stretches; halves, for the distance of two floats may overflow."""
    (values,) = inside
    low, high = (half_of(call(name, values.copy())) for name in ("arrayMin", "arrayMax"))
    share = exp.Div(
        this=exp.Paren(this=exp.Sub(this=half_of(column("v")), expression=low.copy())),
        expression=exp.Paren(this=exp.Sub(this=high.copy(), expression=low.copy())),
    )
    at = call("toUInt16", call("floor", exp.Mul(this=share, expression=stretches.copy())))
    last = exp.Sub(this=stretches.copy(), expression=number(1))
    of = call("if", exp.EQ(this=low.copy(), expression=high.copy()), number(0), call("least", at, last))
    stretched = call("arrayMap", function_of("v", body=of), values.copy())
    counted = call("countEqual", stretched, column("i"))
    each = call("arrayMap", function_of("i", body=counted), call("range", stretches.copy()))
    return call("if", call("empty", values.copy()), call("emptyArrayUInt64"), each)


def half_of(value: Expr) -> Expr:
    """Half of a number."""
    return exp.Div(this=value, expression=number(2))


def function_of(*names: str, body: Expr) -> Expr:
    """A function of array elements."""
    return exp.Lambda(this=body, expressions=[exp.to_identifier(name, quoted=True) for name in names])


_REDUCERS: dict[str, Callable[[_Call], Made]] = {
    "sum": _sum,
    "avg": _avg,
    "min": _extreme,
    "max": _extreme,
    **dict.fromkeys(PERCENTILES, _percentile),
    "quantile": _quantile,
    "stddev": _stddev,
    "distinct": _distinct,
    "histogram": _histogram,
}
