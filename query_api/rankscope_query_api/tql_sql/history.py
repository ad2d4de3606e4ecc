"""A value beside the earlier ones of its series, as windows over all stored rows of the run or project.

Windows see rows before a query's conditions are applied, so they stand in a SELECT of their own under the one that has
the conditions (`Scope.rows`). Aggregates pass over NULL, so a value that is to be passed over is NULL there.
"""

import functools
import math

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql import typed
from rankscope.tql.fields import FIELDS, KEYED, Entity, Field, Origin
from rankscope.tql.series import SERIES
from rankscope_query_api.tql_sql.arithmetic import as_float, combined, rounded
from rankscope_query_api.tql_sql.expressions import all_of, call, column, number
from rankscope_query_api.tql_sql.order import order_by, series_order
from rankscope_query_api.tql_sql.scope import Scope, Source
from rankscope_query_api.tql_sql.writing import text_of

EARLIER_VALUES = 64
"""Values that `robust_z` compares with where a query does not say."""

LEAST_VALUES = 8
"""With fewer there is no `robust_z`."""

MAD_TO_DEVIATION = 1.4826
"""Of a normal distribution: its standard deviation over its median absolute deviation."""

_OF_PROCESS = {"rank", "local_rank", "node", "launch", "world_size", "process_role", "project", "run.id"}
_BY_PROCESS = {Origin.RUN, Origin.LAUNCH, Origin.PLACE}


def is_of_series(node: typed.Condition, entity: Entity) -> bool:
    """Whether a condition is true of all rows of a series or of none, so that windows need not see the others."""
    return all(_is_constant_in_series(value, entity) for value in _values_of(node))


def last_step(node: typed.Condition) -> int | None:
    """The greatest step of which a condition can be true, if it says so: later rows decide nothing of earlier ones."""
    match node:
        case typed.Compare(operator="==" | "<=" | "<", left=Field(name="step"), right=typed.Constant(value=int(bound))):
            return bound
        case typed.Between(value=Field(name="step"), high=typed.Constant(value=int(bound))):
            return bound
        case typed.OneOf(value=Field(name="step")):
            steps = [choice.value for choice in node.choices]
            return max((math.floor(step) for step in steps if not isinstance(step, str)), default=None)
        case _:
            return None


def _values_of(node: typed.Condition) -> list[typed.Value]:
    match node:
        case typed.AllOf() | typed.AnyOf():
            return [value for operand in node.operands for value in _values_of(operand)]
        case typed.Opposite():
            return _values_of(node.operand)
        case typed.Compare():
            return [node.left, node.right]
        case typed.Between():
            return [node.value, node.low, node.high]
        case typed.Contains():
            return [node.value, node.part]
        case _:
            return [node.value]


def _is_constant_in_series(value: typed.Value, entity: Entity) -> bool:
    if isinstance(value, typed.Constant):
        return True
    if isinstance(value, typed.Key):
        return KEYED[value.scope][1] in _BY_PROCESS
    if not isinstance(value, Field):
        return False
    return value.origin in _BY_PROCESS or value.name in _OF_PROCESS or value.name in SERIES.get(entity, ())


def windowed(node: typed.History, side: Source, *, scope: Scope) -> Source:
    """A value of a row that earlier rows of its series decide.

    Args:
        node: Which.
        side: The row's own value.
        scope: Where it is asked; learns the windows.
    """
    match node.function:
        case "prev":
            return _previous(side, scope)
        case "delta":
            return combined("-", side, _previous(side, scope), type=node.type)
        case "ema":
            return rounded(_mean(side, node.count, scope=scope), node.type)
        case "robust_z":
            return _deviation(side, node.count or EARLIER_VALUES, scope=scope)


def _previous(side: Source, scope: Scope) -> Source:
    """The last earlier value that is there and not NaN."""
    known = scope.compute(_known(side))
    value = scope.compute(_window("anyLast", known, scope=scope, is_current_too=False))
    return _nullable(value, side.table, is_float=side.is_float)


def _mean(side: Source, count: int, *, scope: Scope) -> Source:
    """The exponential mean of the finite values up to this row, from what it lags behind the last of them.

    With d the steps from value to value, it is x - (1 - a) * sum of d * (1 - a)^age, which is x itself, to the bit,
    where nothing changes: `x > ema(x, n)` must not be true for a rounding. `exponentialMovingAverage` is a * the sum of
    values * (1 - a)^age, computed row after row; the agent's recursion is the same (measured: to the last bit).
    """
    known = scope.compute(_finite(side))
    last = scope.compute(_window("anyLast", known, scope=scope))
    alpha = 2 / (count + 1)
    if alpha >= 1:
        return _nullable(last, "Float64", is_float=True)
    before = scope.compute(_window("anyLast", known, scope=scope, is_current_too=False))
    age = scope.compute(_window("count", known, scope=scope))
    # NULL where the value is, and 0 for the first.
    step = call(
        "if", call("isNull", before.copy()), exp.Mul(this=known.copy(), expression=number(0)), _less(known, before)
    )
    steps = scope.compute(step)
    half_life = exp.Literal.number(repr(-1 / math.log2(1 - alpha)))
    weighed = exp.ParameterizedAgg(
        this="exponentialMovingAverage", expressions=[half_life], params=[steps.copy(), age.copy()]
    )
    lag = scope.compute(_over(weighed, scope=scope))
    ratio = exp.Literal.number(repr((count - 1) / 2))
    behind = exp.Mul(this=lag.copy(), expression=ratio)
    value = scope.compute(exp.Sub(this=last.copy(), expression=behind))
    present = call("ifNull", call("isFinite", value.copy()), number(0))
    return Source(value, present, nullable=False, absent=None, is_float=True, table="Float64")


def _deviation(side: Source, count: int, *, scope: Scope) -> Source:
    """How far the value is from the median of the earlier ones, in robust standard deviations."""
    known = scope.compute(call("toFloat64", _known(side)))
    latest = exp.ParameterizedAgg(this="groupArrayLast", expressions=[number(count)], params=[known.copy()])
    values = scope.compute(_over(latest, scope=scope, is_current_too=False))
    middle = scope.compute(_median(values))
    away = exp.Lambda(
        this=call("abs", exp.Sub(this=exp.column("one"), expression=middle.copy())),
        expressions=[exp.to_identifier("one")],
    )
    spread = scope.compute(_median(call("arrayMap", away, values.copy())))
    unit = exp.Paren(this=exp.Mul(this=exp.Literal.number(repr(MAD_TO_DEVIATION)), expression=spread.copy()))
    own = as_float(side)
    value = exp.Div(this=exp.Paren(this=_less(own, middle)), expression=unit)
    overflowed = all_of([call("isInfinite", value.copy()), call("isFinite", own.copy())])
    checks = [
        exp.GTE(this=call("length", values.copy()), expression=number(LEAST_VALUES)),
        call("isFinite", middle.copy()),
        call("isFinite", spread.copy()),
        exp.GT(this=spread.copy(), expression=number(0)),
        exp.Not(this=exp.Paren(this=overflowed)),
    ]
    own_presence = [] if side.present is None else [side.present.copy()]
    present = all_of([*own_presence, *checks])
    return Source(value, present, nullable=False, absent=None, is_float=True, table="Float64")


def _less(left: Expr, right: Expr) -> Expr:
    return exp.Sub(this=left.copy(), expression=right.copy())


def _nullable(value: Expr, table: str, *, is_float: bool) -> Source:
    present = call("isNotNull", value.copy())
    return Source(value, present, nullable=True, absent=None, is_float=is_float, table=table)


def _known(side: Source) -> Expr:
    """The value, NULL where it is missing or NaN; Nullable, or of no row an aggregate were 0."""
    if not side.is_float:
        return call("toNullable", side.or_null)
    return call("if", call("isNaN", side.value.copy()), exp.null(), side.or_null)


def _finite(side: Source) -> Expr:
    """The value as a float, NULL where it is missing or not finite."""
    value = call("toFloat64", side.or_null)
    if not side.is_float:
        return call("toNullable", value)
    return call("if", call("isFinite", side.value.copy()), value, exp.null())


def _median(values: Expr) -> Expr:
    """Of the sorted values the middle one, or half the sum of the two in the middle."""
    ordered, size = call("arraySort", values.copy()), call("length", values.copy())
    lower = call("intDiv", exp.Add(this=size.copy(), expression=number(1)), number(2))
    upper = exp.Add(this=call("intDiv", size.copy(), number(2)), expression=number(1))
    ends = [call("arrayElement", ordered.copy(), at) for at in (lower, upper)]
    return exp.Div(this=exp.Paren(this=exp.Add(this=ends[0], expression=ends[1])), expression=number(2))


def _window(function: str, value: Expr, *, scope: Scope, is_current_too: bool = True) -> Expr:
    return _over(call(function, value.copy()), scope=scope, is_current_too=is_current_too)


def _over(value: Expr, *, scope: Scope, is_current_too: bool = True) -> Expr:
    """An aggregate over the rows of the series before this one, and this one."""
    return exp.Window(this=value, spec=exp.Var(this=_rows_of_series(scope.entity, is_current_too=is_current_too)))


@functools.cache
def _rows_of_series(entity: Entity, *, is_current_too: bool) -> str:
    """The rows of a series up to one, as the text of a window: written once, for it took a third of a query's time."""
    series = [column("incarnation"), *(_of_series(FIELDS[name][entity]) for name in SERIES[entity])]
    order = order_by(series_order(entity))
    last = "CURRENT ROW" if is_current_too else "1 PRECEDING"
    return (
        f"PARTITION BY {', '.join(map(text_of, series))} ORDER BY {', '.join(map(text_of, order))} "
        f"ROWS BETWEEN UNBOUNDED PRECEDING AND {last}"
    )


def _of_series(field: Field) -> Expr:
    """What tells the series of a row by a field; of flags, the field's own bit."""
    known = column(field.column[0])
    return call("bitAnd", known, number(field.bit)) if field.bit else known
