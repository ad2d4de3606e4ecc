"""Groups of rows: one SELECT with a GROUP BY, and its columns as what the stages behind can name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import FIELDS, Type
from rankscope.tql.typed import Column, Every, Reduced
from rankscope_query_api.tql_sql.aggregates import Made, output_of
from rankscope_query_api.tql_sql.answer import Shown, Writer, name_of_column, write_list, writer_of, writer_of_type
from rankscope_query_api.tql_sql.expressions import alias, call, column, constant, from_query, number, one_spelling
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
        key: Its key in the items.
        write: How items hold it.
        inside: What is grouped by: the value, or what stands for none.
        side: What the value is read from; where it has an absent word, `inside` has it, too, else it has NULL.
    """

    name: str
    key: str
    write: Writer
    inside: Expr
    side: Source

    def behind(self, name: str) -> Source:
        """The value as the stages behind read it.

        Args:
            name: What `inside` is called.
        """
        value, side = column(name), self.side
        if side.present is None:
            return Source(value, None, nullable=False, absent=None, is_float=side.is_float, table=side.table)
        if side.absent is not None:
            present = exp.NEQ(this=value.copy(), expression=constant(side.absent))
            return Source(value, present, False, side.absent, is_float=side.is_float, table=side.table)
        present = call("isNotNull", value.copy())
        return Source(value, present, nullable=True, absent=None, is_float=side.is_float, table=side.table)


def key_of_groups(named: Column, frame: Frame) -> GroupKey:
    """A value to group by: floats that are equal are spelt alike. To group by NULL took half as long again."""
    side = source(named.value, frame.scope)
    value = side.or_null if side.absent is None else side.value
    inside = one_spelling(value) if side.is_float else value
    key, write = name_of_column(named, frame.made), writer_of(named.value, frame.made)
    return GroupKey(named.name, key, write, inside, side)


def stretches(every: Every, rows: Scope) -> GroupKey:
    """The stretch of steps, or of time, that a row lies in: its first step, or ns."""
    name, kind = ("step", Type.INTEGER) if every.in_steps else ("time", Type.TIME)
    side = source(FIELDS[name][rows.entity], rows)
    size = rows.parameters.bind(every.size, "Int64")
    rest = exp.Paren(this=exp.Mod(this=side.value.copy(), expression=size))
    is_below = exp.LT(this=rest.copy(), expression=number(0))  # of a negative number the rest is negative
    more = call("if", is_below, exp.Paren(this=exp.Add(this=rest, expression=size.copy())), rest.copy())
    begun = exp.Sub(this=side.value.copy(), expression=more)
    value = begun if side.present is None else call("if", side.present.copy(), begun, exp.null())
    whole = replace(side, value=value, nullable=False, absent=None, table="Int64")
    return GroupKey(name, name, writer_of_type(kind), value, whole)


def grouped(
    frame: Frame,
    keys: Sequence[GroupKey],
    *,
    made: Sequence[tuple[Reduced, Made]],
    computed: Sequence[Sequence[tuple[str, Expr]]] = (),
) -> Frame:
    """The groups of a frame's rows.

    Args:
        frame: The rows.
        keys: What the rows of a group have in common; none: all rows are one group.
        made: The aggregates of each group.
        computed: Names and values of columns that are made of the aggregates, layer by layer.
    """
    frame.cut()
    level = frame.level + 1
    names = [f"g{level}_{at}" for at in range(len(keys))]
    inside = [[f"a{level}_{at}_{part}" for part in range(len(one.inside))] for at, (_, one) in enumerate(made)]
    shown = [alias(key.inside, name) for key, name in zip(keys, names, strict=True)]
    for (_, one), columns in zip(made, inside, strict=True):
        shown += [alias(part, name) for part, name in zip(one.inside, columns, strict=True)]
    inner = frame.select().select(*shown, copy=False)
    if names:
        inner.group_by(*(column(name) for name in names), copy=False)
    for at, layer in enumerate(computed):
        further = [alias(value, name) for name, value in layer]
        inner = exp.Select(expressions=[exp.Star(), *further], from_=from_query(inner, f"groups_{level}_{at}"))
    outputs = {key.name: key.behind(name) for key, name in zip(keys, names, strict=True)}
    order = [part for side in outputs.values() for part in value_order(side, is_descending=False)]
    outputs |= {asked.name: output_of(one, columns) for (asked, one), columns in zip(made, inside, strict=True)}
    scope = frame.scope.behind(outputs)
    order = order or [SortKey(call("toUInt8", number(0)), "UInt8")]  # a bare number is a position in ORDER BY
    return Frame(
        scope,
        scope,
        lambda: exp.Select(from_=from_query(inner, f"groups_{level}")),
        order,
        list(order),
        tuple(_shown(keys, [asked for asked, _ in made], outputs=outputs, before=frame.made)),
        is_grouped=True,
        level=level,
    )


def _shown(
    keys: Sequence[GroupKey],
    made: Sequence[Reduced],
    *,
    outputs: Mapping[str, Source],
    before: Mapping[str, Shown],
) -> Iterator[Shown]:
    """The columns; a key that is an aggregate's name, too, gives way to the whole name: `gap.count` beside `count`."""
    taken = {asked.name for asked in made}
    for key in keys:
        yield Shown(key.name if key.key in taken else key.key, outputs[key.name].or_null, key.write, key.name)
    for asked in made:
        yield Shown(asked.name, outputs[asked.name].value.copy(), _writer(asked, before), asked.name)


def _writer(asked: Reduced, before: Mapping[str, Shown]) -> Writer:
    if asked.function in _PICKING:
        return writer_of(asked.arguments[0], before)
    return write_list if asked.type is Type.LIST else writer_of_type(asked.type)
