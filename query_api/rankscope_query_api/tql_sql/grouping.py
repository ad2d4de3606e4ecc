"""Groups of rows: one SELECT with a GROUP BY, and its columns as what the stages behind can name."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from rankscope.tql.fields import FIELDS, Type
from rankscope.tql.typed import Column, Every, Reduced
from rankscope_query_api.tql_sql.aggregates import Made, output_of
from rankscope_query_api.tql_sql.answer import Shown, Writer, of_column, write_list, writer_of, writer_of_type
from rankscope_query_api.tql_sql.expressions import alias, call, column, number
from rankscope_query_api.tql_sql.frames import Frame
from rankscope_query_api.tql_sql.order import SortKey, value_order
from rankscope_query_api.tql_sql.scope import Scope, Source
from rankscope_query_api.tql_sql.sources import source

_PICKING = {"min", "max", "first", "last"}
"""Aggregates whose value is one of the argument's own."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What rows of one group have in common.

    Attributes:
        name: What the stages behind call it.
        shown: The value, NULL as a group of its own, and how items hold it.
        side: What the value is read from.
    """

    name: str
    shown: Shown
    side: Source


def key_of_groups(named: Column, scope: Scope) -> GroupKey:
    """A value to group by."""
    return GroupKey(named.name, of_column(named, scope, is_key=True), source(named.value, scope))


def stretches(every: Every, rows: Scope) -> GroupKey:
    """The stretch of steps, or of time, that a row lies in: its first step, or ns."""
    name, kind = ("step", Type.INTEGER) if every.in_steps else ("time", Type.TIME)
    side = source(FIELDS[name][rows.entity], rows)
    size = rows.parameters.bind(every.size, "Int64")
    begun = exp.Sub(this=side.value.copy(), expression=exp.Mod(this=side.value.copy(), expression=size))
    value = begun if side.present is None else call("if", side.present.copy(), begun, exp.null())
    table = "Int64"
    whole = Source(value, side.present, nullable=False, absent=None, is_float=False, table=table)
    return GroupKey(name, Shown(name, value, writer_of_type(kind)), whole)


def grouped(frame: Frame, keys: Sequence[GroupKey], made: Sequence[tuple[Reduced, Made]]) -> Frame:
    """The groups of a frame's rows.

    Args:
        frame: The rows.
        keys: What the rows of a group have in common; none: all rows are one group.
        made: The aggregates of each group.
    """
    frame.cut()
    level = frame.level + 1
    names = [f"g{level}_{at}" for at in range(len(keys))]
    inside = [[f"a{level}_{at}_{part}" for part in range(len(one.inside))] for at, (_, one) in enumerate(made)]
    inner = frame.select().select(
        *(alias(key.shown.value.copy(), name) for key, name in zip(keys, names, strict=True)),
        *(
            alias(part.copy(), name)
            for (_, one), columns in zip(made, inside, strict=True)
            for part, name in zip(one.inside, columns, strict=True)
        ),
        copy=False,
    )
    if names:
        inner.group_by(*(column(name) for name in names), copy=False)
    outputs = {key.name: _of_key(key.side, name) for key, name in zip(keys, names, strict=True)}
    order = [part for side in outputs.values() for part in value_order(side, is_descending=False)]
    outputs |= {asked.name: output_of(one, columns) for (asked, one), columns in zip(made, inside, strict=True)}
    shown = [
        *(Shown(key.shown.name, column(name), key.shown.write) for key, name in zip(keys, names, strict=True)),
        *(Shown(asked.name, outputs[asked.name].value.copy(), _writer(asked)) for asked, _ in made),
    ]
    scope = frame.scope.behind(outputs)
    order = order or [SortKey(call("toUInt8", number(0)), "UInt8")]  # a bare number is a position in ORDER BY
    return Frame(
        scope,
        scope,
        lambda: exp.select().from_(inner.subquery(f"groups_{level}"), copy=False),
        order,
        list(order),
        tuple(shown),
        is_grouped=True,
        level=level,
    )


def _of_key(side: Source, name: str) -> Source:
    """A group's value as a source: NULL where it is the group of rows without one."""
    is_nullable = side.present is not None
    present = call("isNotNull", column(name)) if is_nullable else None
    return Source(column(name), present, nullable=is_nullable, absent=None, is_float=side.is_float, table=side.table)


def _writer(asked: Reduced) -> Writer:
    if asked.function in _PICKING:
        return writer_of(asked.arguments[0])
    return write_list if asked.type is Type.LIST else writer_of_type(asked.type)
