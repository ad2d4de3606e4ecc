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
from rankscope_query_api.tql_sql.aggregates import Made, countable, finite, function_of, half_of, rounded, wide, within
from rankscope_query_api.tql_sql.expressions import call, column, number
from rankscope_query_api.tql_sql.frames import Frame
from rankscope_query_api.tql_sql.grouping import GroupKey, grouped, key_of_groups
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

_Named = tuple[str, Expr]
"""A column of a SELECT around the groups: its name, and its value."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """The arrays of a group, in order of the ranks, one value each.

    Attributes:
        reduced: How they are compared.
        side: What a value was read from.
        axis: What a rank was read from.
        parameters: Where names of aggregates are bound: they are no text of the statement.
        level: Of the grouping; names are told apart by it.
        beside: Names and values of columns that the comparison is made of.
    """

    reduced: Reduced
    side: Source
    axis: Source
    parameters: Parameters
    level: int
    beside: list[_Named] = dataclasses.field(default_factory=list[_Named])

    @property
    def ranks(self) -> Expr:
        """Array of the ranks, layers or coordinates."""
        return column(self.named("ranks"))

    @property
    def values(self) -> Expr:
        """Array of the values, as they are."""
        return column(self.named("values"))

    @property
    def floats(self) -> Expr:
        """Array of the values as 64-bit floats."""
        return column(self.named("values" if self.side.table == "Float64" else "floats"))

    def once(self, name: str, value: Expr) -> Expr:
        """A value that a comparison names several times: its text stands in the statement once."""
        self.beside.append((self.named(name), value))
        return column(self.named(name))

    def named(self, name: str) -> str:
        """The name of a column that is computed for the comparison."""
        return f"{name}_{self.level}"

    def away(self) -> Expr:
        """How far `one` is from the median."""
        return call("abs", exp.Sub(this=column("one"), expression=column(self.named("middle"))))

    def of_floats(self, aggregate: str, *more: Expr) -> Expr:
        """An aggregate of the floats."""
        return call("arrayReduce", self.parameters.bind(aggregate, "String"), *more, self.floats)


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
    return _of_values(frame, asked, keys=keys, axis=axis, there=there)


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


def _of_values(frame: Frame, asked: Reduced, *, keys: Sequence[GroupKey], axis: Source, there: Expr) -> Frame:
    level = frame.level + 1
    side = source(asked.arguments[0], frame.scope)
    value = side.or_null if asked.function == "agree" else countable(side)
    frame.conditions.append(call("isNotNull", value.copy()))
    if asked.function == "agree" and side.is_float:
        value = call("if", call("isNaN", value.copy()), _nan(), value)
    pairs = call("arraySort", call("groupArray", call("tuple", there, call("assumeNotNull", value))))
    arrays = _Compared(asked, side, axis, frame.scope.parameters, level)
    compared = _of_something(_COMPARISONS[asked.function](arrays), arrays)

    def is_computed_behind(_: Sequence[Expr]) -> Expr:
        return column(f"compared_{level}")

    made = Made((pairs,), compared.table, compared.is_nullable, compared.is_float, is_computed_behind)
    layers = [*_layers(arrays), [*arrays.beside, (f"compared_{level}", compared.inside[0])]]
    return grouped(frame, keys, made=[(asked, made)], computed=layers)


def _of_something(made: Made, compared: _Compared) -> Made:
    """A number of no value is missing; a list of none is empty."""
    if made.table.startswith("Array"):
        return made
    value = call("if", call("empty", compared.values), exp.null(), made.inside[0])
    return dataclasses.replace(made, inside=(value,), is_nullable=True)


def _nan() -> Expr:
    return exp.Div(this=number(0), expression=number(0))


def _layers(arrays: _Compared) -> list[list[_Named]]:
    """The arrays, the median of the floats and that of their distances from it, as far as they are asked for.

    Columns of one layer name those before them, for each layer is a SELECT; the middle, which names its two ends ten
    times, has one of its own.
    """
    layers = [_one_each(arrays)]
    if arrays.reduced.function not in _WITH_MEDIAN:
        return layers
    ends, middle = _median_of(arrays.floats, arrays.named("middle"))
    layers = [[*layers[0], *ends], middle]
    if arrays.reduced.function == "outliers":
        distances = call("arrayMap", function_of("one", body=arrays.away()), arrays.floats)
        layers += _median_of(distances, arrays.named("typical"))
    return layers


def _one_each(arrays: _Compared) -> list[_Named]:
    """From the sorted pairs of a group to one value of each rank, in order."""
    pairs, kept = f"a{arrays.level}_0_0", arrays.named("kept")
    behind = call("arraySlice", call("arrayPushBack", _part(column(pairs), 1), number(_NO_RANK)), number(2))
    is_last = exp.NEQ(this=_part(column("one"), 1), expression=column("next"))
    greatest = call("arrayFilter", function_of("one", "next", body=is_last), column(pairs), behind)
    found = [(kept, greatest)]
    found += [(made.name, _part(column(kept), at)) for at, made in enumerate((arrays.ranks, arrays.values), 1)]
    if arrays.floats.name != arrays.values.name:
        of_floats = function_of("one", body=call("toFloat64", column("one")))
        found.append((arrays.floats.name, call("arrayMap", of_floats, arrays.values)))
    return found


def _median_of(floats: Expr, name: str) -> tuple[list[_Named], list[_Named]]:
    """The two values in the middle, and what lies there.

    That is NaN between the two infinities, and of two that are equal the one.
    """
    ordered, low, high = (f"{name}_{part}" for part in ("of", "low", "high"))
    ends = [(ordered, call("arraySort", floats))]
    for end, more in ((low, 1), (high, 2)):
        size = exp.Add(this=call("length", column(ordered)), expression=number(more))
        ends.append((end, call("arrayElement", column(ordered), call("intDiv", size, number(2)))))
    half = exp.Add(this=column(low), expression=half_of(exp.Paren(this=_apart(high, low))))
    whole = exp.Add(this=half_of(column(low)), expression=half_of(column(high)))
    is_one = exp.EQ(this=column(low), expression=column(high))
    middle = call("multiIf", is_one, column(low), call("isFinite", _apart(high, low)), half, whole)
    return ends, [(name, middle)]


def _apart(high: str, low: str) -> Expr:
    return exp.Sub(this=column(high), expression=column(low))


def _part(pair: Expr, at: int) -> Expr:
    return call("tupleElement", pair, number(at))


def _distance(compared: _Compared) -> Expr:
    """The greatest value less the least, of integers in 128 bits; two infinities that are equal are 0 apart."""
    most, least = (call(name, compared.values) for name in ("arrayMax", "arrayMin"))
    if not compared.side.is_float:
        return exp.Paren(this=exp.Sub(this=wide(most), expression=wide(least)))
    apart = exp.Sub(this=most, expression=least)
    return call("if", exp.EQ(this=most.copy(), expression=least.copy()), call("toFloat64", number(0)), apart)


def _finite(value: Expr, compared: _Compared) -> Expr:
    """A float, NULL where it is NaN, and where it is infinite though all that it was made of is finite."""
    is_infinite = function_of("one", body=call("isInfinite", column("one")))
    infinite = call("arrayCount", is_infinite, compared.floats)
    overflown = exp.And(this=call("isInfinite", value.copy()), expression=exp.EQ(this=infinite, expression=number(0)))
    return call("if", exp.Or(this=overflown, expression=call("isNaN", value.copy())), exp.null(), value)


def _spread(compared: _Compared) -> Made:
    median = call("nullIf", call("abs", column(compared.named("middle"))), number(0))
    share = compared.once("share", exp.Div(this=_distance(compared), expression=median))
    return Made((_finite(share, compared) if compared.side.is_float else share,), "Float64", is_float=True)


def _skew(compared: _Compared) -> Made:
    distance = compared.once("apart", _distance(compared))
    if compared.side.is_float:
        return Made((_finite(distance, compared),), "Float64", is_float=True)
    table = "UInt64" if compared.side.table == "UInt64" else "Int64"
    return Made((within(distance, table),), table)


def _median(compared: _Compared) -> Made:
    kind = compared.reduced.type
    is_float = kind is Type.FLOAT
    middle = column(compared.named("middle"))
    median = call("if", call("isNaN", middle.copy()), exp.null(), middle) if is_float else rounded(middle, kind)
    return Made((median,), "Float64" if is_float else "Int64", is_float=is_float)


def _zscore(compared: _Compared) -> Made:
    mean = call("arrayAvg", compared.floats)
    above = exp.Sub(this=call("arrayMax", compared.floats), expression=mean.copy())
    below = exp.Sub(this=mean, expression=call("arrayMin", compared.floats))
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
    far = call("arrayFilter", test, compared.ranks, compared.floats)
    return Made((far,), f"Array({compared.axis.table})", is_nullable=False)


def _slowest(compared: _Compared) -> Made:
    first = call("indexOf", compared.values, call("arrayMax", compared.values))
    return Made((call("arrayElement", compared.ranks, first),), compared.axis.table, is_nullable=False)


def _agree(compared: _Compared) -> Made:
    # arrayDistinct compares bits, and of the many NaN there is one left here.
    same = exp.LTE(this=call("length", call("arrayDistinct", compared.values)), expression=number(1))
    return Made((same,), "UInt8", is_nullable=False)


def _slope(compared: _Compared) -> Made:
    at = call("arrayMap", function_of("one", body=call("toFloat64", column("one"))), compared.ranks)
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
