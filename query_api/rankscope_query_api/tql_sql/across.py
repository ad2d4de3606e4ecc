"""A value compared over ranks, layers or mesh coordinates: first one value of each, then what they say together.

Two groupings: the inner one reduces the rows of one rank to their greatest value, the outer one compares the ranks.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import FIELDS, Type
from rankscope.tql.typed import Across, Key, Output, Reduced, Value
from rankscope_query_api.tql_sql.aggregates import (
    Made,
    as_float,
    countable,
    function_of,
    made_float,
    quantile,
    wide,
    within,
)
from rankscope_query_api.tql_sql.answer import Shown, writer_of_type
from rankscope_query_api.tql_sql.expressions import call, column, number
from rankscope_query_api.tql_sql.frames import Frame
from rankscope_query_api.tql_sql.grouping import GroupKey, grouped, key_of_groups
from rankscope_query_api.tql_sql.scope import Source
from rankscope_query_api.tql_sql.sources import source

_AXIS, _OF_ONE, _SIZE = "axis of the comparison", "value of one", "world size"
"""Names of the inner grouping's columns; no field is called so."""

_MOST_RANKS = 2**20
"""Most ranks that are looked for: a world size that is no real one must not fill the memory."""

_FIELDS = {"rank": "rank", "layer": "layer.index"}
_OUTLIER = 3.0
"""Beyond which robust z a rank is an outlier, where the query does not say."""

_MAD_OF_SIGMA = "1.4826"
"""How many medians of absolute deviation a standard deviation is, for normal values."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """What the outer grouping compares.

    Attributes:
        reduced: How.
        axis: The rank, layer or coordinate.
        side: The value of each; None: none is asked for.
        size: The world size of each; None: not asked for.
    """

    reduced: Reduced
    axis: Source
    side: Source | None
    size: Source | None

    @property
    def value(self) -> Expr:
        """The value of each."""
        return _of(self.side).value.copy()

    @property
    def floats(self) -> Expr:
        """The value of each as a 64-bit float."""
        return as_float(self.value, _of(self.side))


def _of(side: Source | None) -> Source:
    if side is None:
        raise AssertionError("a comparison without a value was asked for one")
    return side


def across(frame: Frame, stage: Across) -> Frame:
    """The groups of a frame's rows, each with one comparison.

    Args:
        frame: The rows.
        stage: Over what, of what, by what.
    """
    frame.cut()
    keys = [key_of_groups(named, frame.scope) for named in stage.by]
    by_axis = _axis(frame, stage.axis)
    ones = grouped(frame, [*keys, by_axis], _of_one(frame, stage.reduced))
    outputs = ones.scope.outputs or {}
    compared = _Compared(stage.reduced, outputs[_AXIS], outputs.get(_OF_ONE), outputs.get(_SIZE))
    made = _COMPARISONS[stage.reduced.function](compared)
    kept = [
        replace(key, shown=replace(key.shown, value=outputs[key.name].value), side=outputs[key.name]) for key in keys
    ]
    return grouped(ones, kept, [(stage.reduced, made)])


def _axis(frame: Frame, axis: str) -> GroupKey:
    """The rank, layer or coordinate of a row; rows without one are left out."""
    if frame.is_grouped:
        side = source(Output(_FIELDS.get(axis, axis), Type.INTEGER), frame.scope)
    else:
        scope, _, coordinate = axis.partition(".")
        rows = frame.rows
        value: Value = Key(scope, coordinate, Type.INTEGER) if coordinate else FIELDS[_FIELDS[axis]][rows.entity]
        side = source(value, rows)
    if side.present is not None:
        frame.conditions.append(side.present.copy())
    there = call("assumeNotNull", side.value.copy()) if side.present is not None else side.value.copy()
    return GroupKey(_AXIS, Shown(_AXIS, there, writer_of_type(Type.INTEGER)), _always(side))


def _always(side: Source) -> Source:
    return replace(side, present=None, nullable=False, absent=None)


def _of_one(frame: Frame, asked: Reduced) -> list[tuple[Reduced, Made]]:
    """What the inner grouping knows of one rank."""
    if asked.function == "missing_ranks":
        size = source(FIELDS["world_size"][frame.rows.entity], frame.rows)
        made = Made((call("max", size.value),), "UInt32", is_nullable=False)
        return [(Reduced(_SIZE, "greatest", (), Type.INTEGER), made)]
    if not asked.arguments:
        return []
    side = source(asked.arguments[0], frame.scope)
    value = countable(side)
    greatest = call("max", value)
    if asked.function == "agree":
        value = side.or_null
        greatest = _with_nan(value) if side.is_float else call("max", value)
    frame.conditions.append(call("isNotNull", value.copy()))
    made = Made((call("assumeNotNull", greatest),), side.table, is_nullable=False, is_float=side.is_float)
    return [(Reduced(_OF_ONE, "greatest", (), asked.type), made)]


def _with_nan(value: Expr) -> Expr:
    """The greatest float, NaN where one is: `max` would pass it over."""
    nan = exp.Div(this=number(0), expression=number(0))
    has_nan = exp.GT(this=call("countIf", call("isNaN", value.copy())), expression=number(0))
    return call("if", has_nan, nan, call("max", value.copy()))


def _distance(compared: _Compared) -> Expr:
    """The greatest value less the least, of integers in 128 bits."""
    ends = [call(name, compared.value) for name in ("max", "min")]
    if not _of(compared.side).is_float:
        ends = [wide(end) for end in ends]
    return exp.Paren(this=exp.Sub(this=ends[0], expression=ends[1]))


def _finite(value: Expr, compared: _Compared) -> Expr:
    """A float, NULL where it is infinite though all that it was made of is finite."""
    infinite = call("countIf", call("isInfinite", compared.value))
    overflown = exp.And(this=call("isInfinite", value.copy()), expression=exp.EQ(this=infinite, expression=number(0)))
    return call("if", overflown, exp.null(), value)


def _median(compared: _Compared) -> Expr:
    return quantile(exp.Literal.number("0.5"), compared.floats)


def _spread(compared: _Compared) -> Made:
    share = exp.Div(this=_distance(compared), expression=call("nullIf", call("abs", _median(compared)), number(0)))
    is_float = _of(compared.side).is_float
    return Made((_finite(share, compared) if is_float else share,), "Float64", is_float=True)


def _skew(compared: _Compared) -> Made:
    side = _of(compared.side)
    if side.is_float:
        return Made((_finite(_distance(compared), compared),), "Float64", is_float=True)
    table = "UInt64" if side.table == "UInt64" else "Int64"
    return Made((within(_distance(compared), table),), table)


def _middle(compared: _Compared) -> Made:
    return made_float(_median(compared), compared.reduced.type)


def _zscore(compared: _Compared) -> Made:
    floats = compared.floats
    mean = call("avg", floats.copy())
    above = exp.Sub(this=call("max", floats.copy()), expression=mean.copy())
    below = exp.Sub(this=mean, expression=call("min", floats.copy()))
    deviation = call("nullIf", call("stddevPopStable", floats), number(0))
    return Made((exp.Div(this=call("greatest", above, below), expression=deviation),), "Float64", is_float=True)


def _outliers(compared: _Compared) -> Made:
    pairs = call("arraySort", call("groupArray", call("tuple", compared.axis.value.copy(), compared.floats)))
    table = f"Array({compared.axis.table})"
    behind = functools.partial(_far, limit=_limit(compared.reduced.parameter))
    return Made((pairs, _median(compared)), table, is_nullable=False, behind=behind)


def _limit(parameter: float | None) -> Expr:
    """The robust z beyond which a rank is an outlier, as a literal: it is a float of ours, never a text."""
    return exp.Literal.number(f"{_OUTLIER if parameter is None else parameter!r}")


def _far(inside: Sequence[Expr], *, limit: Expr) -> Expr:
    """The first of each pair whose second is far from the median, by the median of such distances."""
    pairs, middle = inside
    of_pair = call("abs", exp.Sub(this=_part(column("one"), 2), expression=middle.copy()))
    distances = call("arraySort", call("arrayMap", function_of("one", body=of_pair), pairs.copy()))
    typical = _in_the_middle(distances)
    scaled = exp.Mul(this=exp.Literal.number(_MAD_OF_SIGMA), expression=typical.copy())
    is_far = exp.GT(this=of_pair.copy(), expression=exp.Mul(this=limit.copy(), expression=scaled))
    is_known = exp.And(
        this=exp.GT(this=typical.copy(), expression=number(0)), expression=call("isFinite", typical.copy())
    )
    far = call("arrayFilter", function_of("one", body=exp.And(this=is_known, expression=is_far)), pairs.copy())
    return call("arrayMap", function_of("one", body=_part(column("one"), 1)), far)


def _part(pair: Expr, at: int) -> Expr:
    return call("tupleElement", pair, number(at))


def _in_the_middle(ordered: Expr) -> Expr:
    """The median of an array in order."""
    length = call("length", ordered.copy())
    lower = call("intDiv", exp.Add(this=length.copy(), expression=number(1)), number(2))
    upper = exp.Add(this=call("intDiv", length, number(2)), expression=number(1))
    ends = [call("arrayElement", ordered.copy(), at) for at in (lower, upper)]
    return exp.Div(this=exp.Paren(this=exp.Add(this=ends[0], expression=ends[1])), expression=number(2))


def _slowest(compared: _Compared) -> Made:
    lowest_first = exp.Neg(this=call("toInt64", compared.axis.value.copy()))
    greatest = call("argMax", compared.axis.value.copy(), call("tuple", compared.value, lowest_first))
    return Made((greatest,), compared.axis.table, is_nullable=False)


def _agree(compared: _Compared) -> Made:
    # uniqExact compares bits, and of the many NaN there is one left here.
    same = exp.LTE(this=call("uniqExact", compared.value), expression=number(1))
    return Made((same,), "UInt8", is_nullable=False)


def _count_ranks(compared: _Compared) -> Made:
    del compared
    return Made((call("count"),), "UInt64", is_nullable=False)


def _missing_ranks(compared: _Compared) -> Made:
    size = call("least", call("max", _of(compared.size).value.copy()), number(_MOST_RANKS))
    expected = call("bitmapBuild", call("range", call("toUInt32", size)))
    there = call("groupBitmapState", call("toUInt32", compared.axis.value.copy()))
    missing = call("arraySort", call("bitmapToArray", call("bitmapAndnot", expected, there)))
    return Made((missing,), "Array(UInt32)", is_nullable=False)


def _slope(compared: _Compared) -> Made:
    fitted = call("simpleLinearRegression", call("toFloat64", compared.axis.value.copy()), compared.floats)
    slope = call("tupleElement", fitted, number(1))
    return Made((call("if", call("isFinite", slope.copy()), slope, exp.null()),), "Float64", is_float=True)


_COMPARISONS: dict[str, Callable[[_Compared], Made]] = {
    "spread": _spread,
    "skew": _skew,
    "median": _middle,
    "zscore": _zscore,
    "outliers": _outliers,
    "slowest": _slowest,
    "agree": _agree,
    "count_ranks": _count_ranks,
    "missing_ranks": _missing_ranks,
    "slope": _slope,
}
