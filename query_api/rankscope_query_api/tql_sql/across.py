"""A value compared over ranks, layers or mesh coordinates.

The rows of a group are collected as pairs of rank and value, sorted, and of each rank the last, that is the greatest,
is kept; then the values are compared as an array. To group by the rank too, and then once more, took three times as
long: nearly every row is a group then (2 M rows: 0.87 s, and 0.27 s so).
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import FIELDS, Type
from rankscope.tql.typed import Across, Key, Output, Reduced, Value
from rankscope_query_api.tql_sql.aggregates import Made, countable, finite, function_of, rounded, wide, within
from rankscope_query_api.tql_sql.expressions import call, column, number
from rankscope_query_api.tql_sql.frames import Frame
from rankscope_query_api.tql_sql.grouping import grouped, key_of_groups
from rankscope_query_api.tql_sql.parameters import Parameters
from rankscope_query_api.tql_sql.scope import Source
from rankscope_query_api.tql_sql.sources import source

_MOST_RANKS = 2**20
"""Most ranks that are looked for: a world size that is no real one must not fill the memory."""

_NO_RANK = -2
"""No rank, layer or coordinate."""

_FIELDS = {"rank": "rank", "layer": "layer.index"}
_OUTLIER = 3.0
"""Beyond which robust z a rank is an outlier, where the query does not say."""

_MAD_OF_SIGMA = "1.4826"
"""How many medians of absolute deviation a standard deviation is, for normal values."""

_WITH_MEDIAN = {"spread", "median", "outliers"}
"""Comparisons with the value in the middle."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """The arrays of a group, in order of the ranks, one value each.

    Attributes:
        reduced: How they are compared.
        ranks: Array of the ranks, layers or coordinates.
        values: Array of the values, as they are.
        floats: Array of the values as 64-bit floats.
        side: What a value was read from.
        axis: What a rank was read from.
        parameters: Where names of aggregates are bound: they are no text of the statement.
        level: Of the grouping; names are told apart by it.
    """

    reduced: Reduced
    ranks: Expr
    values: Expr
    floats: Expr
    side: Source
    axis: Source
    parameters: Parameters
    level: int

    def named(self, name: str) -> str:
        """The name of a column that is computed for the comparison."""
        return f"{name}_{self.level}"

    def away(self) -> Expr:
        """How far `one` is from the median."""
        return call("abs", exp.Sub(this=column("one"), expression=column(self.named("middle"))))

    def of_floats(self, aggregate: str, *more: Expr) -> Expr:
        """An aggregate of the floats."""
        return call("arrayReduce", self.parameters.bind(aggregate, "String"), *more, self.floats.copy())


def across(frame: Frame, stage: Across) -> Frame:
    """The groups of a frame's rows, each with one comparison.

    Args:
        frame: The rows.
        stage: Over what, of what, by what.
    """
    frame.cut()
    keys = [key_of_groups(named, frame) for named in stage.by]
    axis = _axis(frame, stage.axis)
    if axis.present is not None:
        frame.conditions.append(axis.present.copy())
    there = call("assumeNotNull", axis.value.copy()) if axis.present is not None else axis.value.copy()
    asked = stage.reduced
    if asked.function == "count_ranks":
        return grouped(frame, keys, made=[(asked, Made((call("uniqExact", there),), "UInt64", is_nullable=False))])
    if asked.function == "missing_ranks":
        return grouped(frame, keys, made=[(asked, _missing_ranks(there, source(_world_size(frame), frame.rows)))])
    return _of_values(frame, stage, axis=axis, there=there)


def _world_size(frame: Frame) -> Value:
    return FIELDS["world_size"][frame.rows.entity]


def _axis(frame: Frame, axis: str) -> Source:
    """The rank, layer or coordinate of a row."""
    if frame.is_grouped:
        return source(Output(_FIELDS.get(axis, axis), Type.INTEGER), frame.scope)
    scope, _, coordinate = axis.partition(".")
    rows = frame.rows
    value: Value = Key(scope, coordinate, Type.INTEGER) if coordinate else FIELDS[_FIELDS[axis]][rows.entity]
    return source(value, rows)


def _missing_ranks(there: Expr, size: Source) -> Made:
    expected = call("least", call("max", size.value), number(_MOST_RANKS))
    all_ranks = call("bitmapBuild", call("range", call("toUInt32", expected)))
    missing = call("bitmapAndnot", all_ranks, call("groupBitmapState", call("toUInt32", there)))
    return Made((call("arraySort", call("bitmapToArray", missing)),), "Array(UInt32)", is_nullable=False)


def _of_values(frame: Frame, stage: Across, *, axis: Source, there: Expr) -> Frame:
    keys = [key_of_groups(named, frame) for named in stage.by]
    asked, level = stage.reduced, frame.level + 1
    side = source(asked.arguments[0], frame.scope)
    value = side.or_null if asked.function == "agree" else countable(side)
    frame.conditions.append(call("isNotNull", value.copy()))
    if asked.function == "agree" and side.is_float:
        value = call("if", call("isNaN", value.copy()), _nan(), value)
    pairs = call("groupArray", call("tuple", there, call("assumeNotNull", value)))
    arrays = _Compared(
        asked,
        column(f"ranks_{level}"),
        column(f"values_{level}"),
        column(f"floats_{level}"),
        side,
        axis,
        frame.scope.parameters,
        level,
    )
    compared = _of_something(_COMPARISONS[asked.function](arrays), arrays)

    def is_computed_behind(_: Sequence[Expr]) -> Expr:
        return column(f"compared_{level}")

    made = Made((pairs,), compared.table, compared.is_nullable, compared.is_float, is_computed_behind)
    layers = [*_layers(level, arrays), *_further(arrays), [(f"compared_{level}", compared.inside[0])]]
    return grouped(frame, keys, made=[(asked, made)], computed=layers)


def _of_something(made: Made, compared: _Compared) -> Made:
    """A number of no value is missing; a list of none is empty."""
    if made.table.startswith("Array"):
        return made
    value = call("if", call("empty", compared.values.copy()), exp.null(), made.inside[0])
    return dataclasses.replace(made, inside=(value,), is_nullable=True)


def _nan() -> Expr:
    return exp.Div(this=number(0), expression=number(0))


def _layers(level: int, arrays: _Compared) -> list[list[tuple[str, Expr]]]:
    """From the pairs of a group to one value of each rank, in order."""
    ordered, kept = f"ordered_{level}", f"kept_{level}"
    ranks = _part(column(ordered), 1)
    behind = call("arraySlice", call("arrayPushBack", ranks, number(_NO_RANK)), number(2))
    is_last = exp.NEQ(this=_part(column("one"), 1), expression=column("next"))
    greatest = call("arrayFilter", function_of("one", "next", body=is_last), column(ordered), behind)
    floats = arrays.values.copy()
    if arrays.side.table != "Float64":
        floats = call("arrayMap", function_of("one", body=call("toFloat64", column("one"))), floats)
    return [
        [(ordered, call("arraySort", column(f"a{level}_0_0")))],
        [(kept, greatest)],
        [(arrays.ranks.name, _part(column(kept), 1)), (arrays.values.name, _part(column(kept), 2))],
        [(arrays.floats.name, floats)],
    ]


def _further(arrays: _Compared) -> list[list[tuple[str, Expr]]]:
    """The median of the floats, and of their distances from it, where they are asked for."""
    if arrays.reduced.function not in _WITH_MEDIAN:
        return []
    layers = _median_of(arrays.floats, arrays.named("middle"))
    if arrays.reduced.function == "outliers":
        distances = call("arrayMap", function_of("one", body=arrays.away()), arrays.floats.copy())
        layers += _median_of(distances, arrays.named("typical"))
    return layers


def _median_of(floats: Expr, name: str) -> list[list[tuple[str, Expr]]]:
    """What lies in the middle: NaN between the two infinities, and of two that are equal the one."""
    ordered = column(f"{name}_of")
    size = call("length", ordered.copy())
    at = [call("intDiv", exp.Add(this=size.copy(), expression=number(more)), number(2)) for more in (1, 2)]
    ends = [call("arrayElement", ordered.copy(), one) for one in at]
    low, high = column(f"{name}_low"), column(f"{name}_high")
    apart = exp.Paren(this=exp.Sub(this=high.copy(), expression=low.copy()))
    half = exp.Add(this=low.copy(), expression=exp.Div(this=apart.copy(), expression=number(2)))
    halves = [exp.Div(this=end.copy(), expression=number(2)) for end in (low, high)]
    whole = exp.Add(this=halves[0], expression=halves[1])
    is_one = exp.EQ(this=low.copy(), expression=high.copy())
    middle = call("multiIf", is_one, low.copy(), call("isFinite", apart), half, whole)
    return [
        [(ordered.name, call("arraySort", floats.copy()))],
        [(low.name, ends[0]), (high.name, ends[1])],
        [(name, middle)],
    ]


def _part(pair: Expr, at: int) -> Expr:
    return call("tupleElement", pair, number(at))


def _distance(compared: _Compared) -> Expr:
    """The greatest value less the least, of integers in 128 bits; two infinities that are equal are 0 apart."""
    most, least = (call(name, compared.values.copy()) for name in ("arrayMax", "arrayMin"))
    if not compared.side.is_float:
        return exp.Paren(this=exp.Sub(this=wide(most), expression=wide(least)))
    apart = exp.Sub(this=most, expression=least)
    return call("if", exp.EQ(this=most.copy(), expression=least.copy()), call("toFloat64", number(0)), apart)


def _finite(value: Expr, compared: _Compared) -> Expr:
    """A float, NULL where it is NaN, and where it is infinite though all that it was made of is finite."""
    is_infinite = function_of("one", body=call("isInfinite", column("one")))
    infinite = call("arrayCount", is_infinite, compared.floats.copy())
    overflown = exp.And(this=call("isInfinite", value.copy()), expression=exp.EQ(this=infinite, expression=number(0)))
    return call("if", exp.Or(this=overflown, expression=call("isNaN", value.copy())), exp.null(), value)


def _spread(compared: _Compared) -> Made:
    median = call("nullIf", call("abs", column(compared.named("middle"))), number(0))
    share = exp.Div(this=_distance(compared), expression=median)
    return Made((_finite(share, compared) if compared.side.is_float else share,), "Float64", is_float=True)


def _skew(compared: _Compared) -> Made:
    if compared.side.is_float:
        return Made((_finite(_distance(compared), compared),), "Float64", is_float=True)
    table = "UInt64" if compared.side.table == "UInt64" else "Int64"
    return Made((within(_distance(compared), table),), table)


def _median(compared: _Compared) -> Made:
    kind = compared.reduced.type
    is_float = kind is Type.FLOAT
    middle = column(compared.named("middle"))
    median = call("if", call("isNaN", middle.copy()), exp.null(), middle) if is_float else rounded(middle, kind)
    return Made((median,), "Float64" if is_float else "Int64", is_float=is_float)


def _zscore(compared: _Compared) -> Made:
    floats = compared.floats
    mean = call("arrayAvg", floats.copy())
    above = exp.Sub(this=call("arrayMax", floats.copy()), expression=mean.copy())
    below = exp.Sub(this=mean, expression=call("arrayMin", floats.copy()))
    deviation = call("nullIf", finite(compared.of_floats("stddevPopStable")), number(0))
    return Made((finite(exp.Div(this=call("greatest", above, below), expression=deviation)),), "Float64", is_float=True)


def _outliers(compared: _Compared) -> Made:
    """Those whose value is far from the median, by the median of such distances."""
    typical = column(compared.named("typical"))
    parameter = compared.reduced.parameter
    limit = compared.parameters.bind(float(_OUTLIER if parameter is None else parameter), "Float64")
    unit = exp.Mul(this=exp.Literal.number(_MAD_OF_SIGMA), expression=typical.copy())
    is_far = exp.GT(this=compared.away(), expression=exp.Mul(this=limit, expression=exp.Paren(this=unit)))
    is_known = exp.And(this=exp.GT(this=typical, expression=number(0)), expression=call("isFinite", typical.copy()))
    test = function_of("rank", "one", body=exp.And(this=is_known, expression=is_far))
    far = call("arrayFilter", test, compared.ranks.copy(), compared.floats.copy())
    return Made((far,), f"Array({compared.axis.table})", is_nullable=False)


def _slowest(compared: _Compared) -> Made:
    first = call("indexOf", compared.values.copy(), call("arrayMax", compared.values.copy()))
    return Made((call("arrayElement", compared.ranks.copy(), first),), compared.axis.table, is_nullable=False)


def _agree(compared: _Compared) -> Made:
    # arrayDistinct compares bits, and of the many NaN there is one left here.
    same = exp.LTE(this=call("length", call("arrayDistinct", compared.values.copy())), expression=number(1))
    return Made((same,), "UInt8", is_nullable=False)


def _slope(compared: _Compared) -> Made:
    at = call("arrayMap", function_of("one", body=call("toFloat64", column("one"))), compared.ranks.copy())
    slope = _part(compared.of_floats("simpleLinearRegression", at), 1)
    return Made((call("if", call("isFinite", slope.copy()), slope, exp.null()),), "Float64", is_float=True)


_COMPARISONS: dict[str, Callable[[_Compared], Made]] = {
    "spread": _spread,
    "skew": _skew,
    "median": _median,
    "zscore": _zscore,
    "outliers": _outliers,
    "slowest": _slowest,
    "agree": _agree,
    "slope": _slope,
}
