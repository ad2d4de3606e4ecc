"""The total order of an answer, and the page that comes after a given row.

Without `order by`, rows are in the order of (step, microstep, phase, row within its process, rank, row key): the
forward pass comes before the backward pass, so the first row with a non-finite value is where it arose. Rows without a
step come first, by time, whatever their phase; what has no step is in the order of its time. Every key is free of NULL
and NaN, so that "after this row" is one comparison.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import SECTION, TIME_COLUMN, Entity
from rankscope_query_api.tql_sql.expressions import all_of, any_of, call, column, number, step
from rankscope_query_api.tql_sql.parameters import Parameters, Value
from rankscope_query_api.tql_sql.scope import Source


@dataclass(frozen=True, slots=True)
class SortKey:
    """One part of the order.

    Attributes:
        value: What is compared; never NULL or NaN.
        table: ClickHouse type to bind a row's value as.
        descending: Greatest first.
    """

    value: Expr
    table: str
    descending: bool = False

    def reversed(self) -> "SortKey":
        """The same key from the other end."""
        return SortKey(self.value, self.table, not self.descending)


_KEYS_WITHOUT_TABLE = {
    Entity.TRACE: (("trace_time", "Int64"), ("run_id", "String"), ("trace_hi", "UInt64"), ("trace_lo", "UInt64")),
    Entity.RUN: (("run_time", "Int64"), ("run_id", "String")),
}


@functools.cache
def row_order(entity: Entity) -> tuple[SortKey, ...]:
    """The total order of an entity's rows."""
    if entity in _KEYS_WITHOUT_TABLE:
        return tuple(SortKey(column(name), table) for name, table in _KEYS_WITHOUT_TABLE[entity])
    names = {declared.name for declared in SECTION[entity].fields}
    time = column(TIME_COLUMN[entity])
    identity = SortKey(call("lower", call("hex", column("incarnation"))), "String")
    within = [SortKey(column("seq"), "UInt64"), SortKey(column("idx"), "UInt32")]
    if "step" not in names:
        return SortKey(time, "Int64"), identity, *within
    without_step = exp.EQ(this=step(), expression=number(-1))
    keys = [SortKey(step(), "Int64"), SortKey(call("if", without_step, time, number(0)), "Int64")]
    if "microstep" in names:
        keys += [SortKey(column("microstep"), "UInt32"), SortKey(column("phase"), "UInt8")]
    return *keys, *within, SortKey(column("rank"), "Int32"), identity


def series_order(entity: Entity) -> list[SortKey]:
    """The same order within one process: what is equal in all its rows is left out, as sorting it costs the most."""
    return [key for key in row_order(entity) if not _is_of_process(key)]


def _is_of_process(key: SortKey) -> bool:
    return any(found.name in {"incarnation", "rank"} for found in key.value.find_all(exp.Column))


def value_order(side: Source, *, is_descending: bool) -> list[SortKey]:
    """The keys of one `order by` value: first the rows that have it, then NaN, then those without."""
    kinds: list[Expr] = []
    if side.present is not None:
        kinds += [exp.Not(this=exp.Paren(this=side.present.copy())), number(2)]
    if side.is_float:
        kinds += [call("ifNull", call("isNaN", side.value.copy()), number(0)), number(1)]
    value = _never_null(side)
    if not kinds:
        return [SortKey(value, side.table, is_descending)]
    kind = call("multiIf", *kinds, number(0))
    return [SortKey(kind, "UInt8"), SortKey(value, _bindable(side.table), is_descending)]


def _bindable(table: str) -> str:
    """Float32 values are read as 64-bit floats, so they are bound as such."""
    return "Float64" if table == "Float32" else table


def _never_null(side: Source) -> Expr:
    """The value, and one that is the same for all rows where it is missing or NaN."""
    value = side.value.copy()
    nothing = exp.Literal.string("") if side.table == "String" else number(0)
    if side.is_float:
        value = call("if", call("isNaN", value), number(0), value.copy())
    if side.nullable:
        return call("ifNull", value, nothing)
    if side.present is not None and side.absent is None:
        # What is computed may be NULL or anything where it is missing.
        return call("ifNull", call("if", side.present.copy(), value, nothing), nothing.copy())
    return value


def order_by(keys: Sequence[SortKey]) -> list[Expr]:
    """The keys as the items of an ORDER BY."""
    return [exp.Ordered(this=key.value.copy(), desc=key.descending, nulls_first=False) for key in keys]


def beyond(keys: list[SortKey], row: list[Value], *, parameters: Parameters) -> Expr:
    """True of the rows that come after a given one.

    Args:
        keys: The order, without two equal rows.
        row: The value of each key in that row.
        parameters: Where the values are bound.
    """
    bound = [parameters.bind(value, key.table) for key, value in zip(keys, row, strict=True)]
    cases = [_first_difference(keys, bound, at=at) for at in range(len(keys))]
    # The first key alone lets the sorting key skip what lies before.
    at_least = exp.GTE if not keys[0].descending else exp.LTE
    return all_of([at_least(this=keys[0].value.copy(), expression=bound[0].copy()), exp.Paren(this=any_of(cases))])


def _first_difference(keys: list[SortKey], bound: list[exp.Placeholder], *, at: int) -> Expr:
    """True of the rows that equal the given one before a key and lie beyond it there."""
    equal = [
        exp.EQ(this=key.value.copy(), expression=value.copy()) for key, value in zip(keys[:at], bound[:at], strict=True)
    ]
    operator = exp.LT if keys[at].descending else exp.GT
    return exp.Paren(this=all_of([*equal, operator(this=keys[at].value.copy(), expression=bound[at].copy())]))
