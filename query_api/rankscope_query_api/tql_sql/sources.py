"""Every value of a typed query as SQL that says both what it is and when it is there.

A row is without a value in one of three ways: a NULL, a key that its map lacks, or the word that the wire sends for
"nothing" ("", code 0, rank -1). `Source` says of a value both what it is and when it is there, so that conditions can
be two-valued: in SQL's own logic `NOT (x = 1)` would leave out the rows without x.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql import typed
from rankscope.tql.fields import MAPS, Field, Origin, Type
from rankscope_query_api.tql_sql.arithmetic import applied, combined
from rankscope_query_api.tql_sql.expressions import any_of, at_key, call, column, constant, has_key, number, step
from rankscope_query_api.tql_sql.history import windowed
from rankscope_query_api.tql_sql.lookups import looked_up, of_config, of_mesh
from rankscope_query_api.tql_sql.scope import Scope, Source


def source(value: typed.Value, scope: Scope) -> Source:
    """How a value of a row is read.

    Args:
        value: What is asked of the row.
        scope: Where it is asked; learns what has to be joined to the rows and computed beside them.
    """
    return _READERS[type(value)](value, scope)


def _of_arithmetic(value: typed.Arithmetic, scope: Scope) -> Source:
    return combined(value.operator, source(value.left, scope), source(value.right, scope), type=value.type)


def _of_function(value: typed.Apply, scope: Scope) -> Source:
    return applied(value.function, [source(one, scope) for one in value.arguments], type=value.type)


def _of_history(value: typed.History, scope: Scope) -> Source:
    return windowed(value, source(value.value, scope), scope=scope)


def of_constant(value: typed.Constant, scope: Scope) -> Source:
    """A constant: bound, always there."""
    is_float = isinstance(value.value, float)
    bound = scope.parameters.bind(plain(value), bindable(value.table))
    return Source(bound, None, nullable=False, absent=None, is_float=is_float, table=bindable(value.table))


def plain(value: typed.Constant) -> int | float | str:
    """The constant as it is bound; a boolean is a number of ClickHouse."""
    return int(value.value) if isinstance(value.value, bool) else value.value


def bindable(table: str) -> str:
    """The type without how it is stored: LowCardinality is a column's, Bool a number."""
    if "String" in table and not table.startswith("Array"):
        return "String"
    return "UInt8" if table == "Bool" else table


def _of_output(value: typed.Output, scope: Scope) -> Source:
    """A column of the stage before; of a list, where a number is wanted, its length."""
    made = (scope.outputs or {})[value.name]
    shown, present = made.value.copy(), made.present.copy() if made.present is not None else None
    if not made.table.startswith("Array"):
        return replace(made, value=shown, present=present)
    if value.type is Type.LIST:
        return replace(made, value=shown, present=call("notEmpty", shown.copy()))
    return replace(made, value=call("length", shown), present=present, table="UInt64")


def _of_field(field: Field, scope: Scope) -> Source:
    if field.origin is not Origin.ROW:
        return looked_up(field, scope)
    if field.bit:
        is_set = exp.NEQ(this=call("bitAnd", column(field.column[0]), number(field.bit)), expression=number(0))
        return _always(exp.Paren(this=is_set), field.table)
    composed = _composed(field, scope)
    if composed is not None:
        return composed
    is_float = field.type is Type.FLOAT
    value = column(field.column[0])
    if field.type is Type.LIST:
        return Source(value, call("notEmpty", value.copy()), False, None, False, field.table)
    if field.nullable:
        present = call("isNotNull", value.copy())
        return Source(value, present, nullable=True, absent=None, is_float=is_float, table=field.table)
    present = None
    if field.absent is not None:
        present = exp.NEQ(this=value.copy(), expression=constant(field.absent))
    return Source(value, present, nullable=False, absent=field.absent, is_float=is_float, table=bindable(field.table))


def _composed(field: Field, scope: Scope) -> Source | None:
    """A field that is more than the value of a column."""
    if field.name == "step":
        present = exp.NEQ(this=step(), expression=number(-1))
        return Source(step(), present, nullable=False, absent=-1, is_float=False, table="Int64")
    if field.name == "span.end":
        return _end()
    if field.type is Type.ID and len(field.column) == 2:
        return _always(_trace_id(), "UInt128")
    if field.table.startswith("FixedString"):
        return _always(call("lower", call("hex", column(field.column[0]))), "String")
    if field.name == "tensor.shape":
        parts = [scope.parameters.bind(text, "String") for text in (",", ", ")]
        return _always(call("replaceAll", call("toString", column("shape")), *parts), "String")
    return None


def _end() -> Source:
    """Start and duration; missing beyond 64 bits, where the sum wraps to the wrong side of the start."""
    start, duration = column("start"), column("duration")
    end = exp.Paren(this=exp.Add(this=start, expression=duration))
    grows = exp.Paren(this=exp.GTE(this=duration.copy(), expression=number(0)))
    present = exp.EQ(this=exp.Paren(this=exp.GTE(this=end.copy(), expression=start.copy())), expression=grows)
    return Source(end, present, nullable=False, absent=None, is_float=False, table="Int64")


def _always(value: Expr, table: str) -> Source:
    return Source(value, None, nullable=False, absent=None, is_float=False, table=table)


def _trace_id() -> Expr:
    high = call("bitShiftLeft", call("toUInt128", column("trace_hi")), number(64))
    return call("bitOr", high, call("toUInt128", column("trace_lo")))


def _of_key(key: typed.Key, scope: Scope) -> Source:
    """A key of a map; one that may be text or number is read as text."""
    if key.scope == "run.config":
        return of_config(key, scope)
    if key.scope == "mesh":
        return of_mesh(key, scope)
    name = scope.parameters.bind(key.key, "String")
    texts, numbers = MAPS[key.scope][0], MAPS[key.scope][-1]
    if key.type is Type.ATTRIBUTE:
        in_numbers = call("if", has_key(numbers, name), call("toString", at_key(numbers, name)), exp.null())
        either = call("if", has_key(texts, name), at_key(texts, name), in_numbers)
        present = exp.Paren(this=any_of([has_key(texts, name), has_key(numbers, name)]))
        return Source(either, present, nullable=True, absent=None, is_float=False, table="String")
    is_float = key.type is Type.FLOAT
    one = numbers if is_float else texts
    table = "Float64" if is_float else "String"
    return Source(at_key(one, name), has_key(one, name), nullable=False, absent=None, is_float=is_float, table=table)


_READERS: dict[type, Callable[[Any, Scope], Source]] = {
    typed.Constant: of_constant,
    typed.Output: _of_output,
    typed.Key: _of_key,
    typed.Arithmetic: _of_arithmetic,
    typed.Apply: _of_function,
    typed.History: _of_history,
    Field: _of_field,
}
