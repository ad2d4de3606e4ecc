"""From stages to typed stages: each says what becomes of the rows, and what can be named behind it."""

from collections.abc import Callable, Sequence
from typing import Any

from rankscope.tql import nodes
from rankscope.tql.across import axis, column_of, comparison
from rankscope.tql.aggregates import Reduction, every, reduced, reduction
from rankscope.tql.conditions import condition
from rankscope.tql.errors import Place, TqlTypeError
from rankscope.tql.fields import ORDERED, Type
from rankscope.tql.formatting import format_value
from rankscope.tql.literals import with_article
from rankscope.tql.naming import Names, Operand, as_number, behind, narrowed
from rankscope.tql.typed import Across, Aggregate, Column, Filter, Key, Limit, Order, OrderKey, Reduced, Select, Stage
from rankscope.tql.values import field_or_value

MAX_LIMIT = 1_000_000
"""Most rows that a `limit` may ask for; pages are smaller."""

Made = tuple[Sequence[Stage], Names]
"""What a stage becomes, and what can be named behind it."""


def stage(written: nodes.Stage, names: Names) -> Made:
    """What becomes of the rows in one stage.

    Args:
        written: The stage.
        names: What can be named in it.

    Raises:
        TqlTypeError: A name, type, number or unit in it does not fit.
        TqlUnsupported: It names what no row can have.
    """
    return _STAGES[type(written)](written, names)


def _where(written: nodes.Where, names: Names) -> Made:
    return (Filter(condition(written.predicate, names)),), names


def _select(written: nodes.Select, names: Names) -> Made:
    operands = [field_or_value(item, names) for item in written.items]
    columns = named_columns(written.items, operands)
    made = [(column.name, operand) for column, operand in zip(columns, operands, strict=True)]
    return (Select(columns),), behind(names.entity, made)


def named_columns(written: Sequence[nodes.Value], operands: Sequence[Operand]) -> tuple[Column, ...]:
    """Values under their names: as the formatter writes them.

    Raises:
        TqlTypeError: Two have the same name.
    """
    found = tuple(Column(format_value(node), one.value) for node, one in zip(written, operands, strict=True))
    for index, column in enumerate(found):
        if column.name in [before.name for before in found[:index]]:
            raise stands_twice(column.name, written[index].place)
    return found


def stands_twice(name: str, place: Place) -> TqlTypeError:
    """The error of two columns of one name."""
    return TqlTypeError("named_twice", f"{name} stands here twice", place=place, hint="leave one of them out")


def _order_by(written: nodes.OrderBy, names: Names) -> Made:
    keys = [made for key in written.keys for made in _order_keys(key.value, names, is_descending=key.descending)]
    return (Order(tuple(keys)),), names


def _order_keys(node: nodes.Value, names: Names, *, is_descending: bool) -> list[OrderKey]:
    """What to order by: an attribute by the number under it, and then by the text."""
    operand = field_or_value(node, names)
    if isinstance(operand.value, Key) and operand.type is Type.ATTRIBUTE:
        both = (narrowed(operand, kind) for kind in (Type.FLOAT, Type.STRING))
        return [OrderKey(one.value, is_descending) for one in both]
    operand = as_number(operand)
    if operand.type is Type.LIST:
        message = f"{operand.like.name} is {with_article(operand.type)}: rows have no order by it"
        hint = "order by something else of the row"
        raise TqlTypeError("unordered", message, place=node.place, expected=tuple(sorted(ORDERED)), hint=hint)
    return [OrderKey(operand.value, is_descending)]


def _top(written: nodes.Top, names: Names) -> Made:
    count = _row_count(written.count)
    return (Order(tuple(_order_keys(written.value, names, is_descending=True))), Limit(count)), names


def _first(_written: nodes.First, names: Names) -> Made:
    return (Limit(1),), names


def _last(_written: nodes.Last, names: Names) -> Made:
    return (Limit(1, is_last=True),), names


def _limit(written: nodes.Limit, names: Names) -> Made:
    return (Limit(_row_count(written.count)),), names


def _row_count(number: nodes.Number) -> int:
    digits = number.text.lstrip("0")
    is_whole = not number.unit and number.text.isdigit() and bool(digits) and len(digits) <= len(str(MAX_LIMIT))
    if not is_whole or int(digits) > MAX_LIMIT:
        message, expected = f"{format_value(number)} is no number of rows", (f"1 to {MAX_LIMIT}",)
        hint = "write how many, as in 10"
        raise TqlTypeError("out_of_range", message, place=number.place, expected=expected, hint=hint)
    return int(digits)


def _aggregate(written: nodes.Aggregate, names: Names) -> Made:
    by, made = _grouped(written.by, names)
    stretch = None
    if written.every is not None:
        stretch, column = every(written.every, names)
        if column[0] in [name for name, _ in made]:
            raise stands_twice(column[0], written.every.place)
        made.append(column)
    found = [reduction(call, names) for call in written.calls]
    outputs = reduced(found)
    return (Aggregate(outputs, by, stretch),), _behind(made, found, outputs=outputs, names=names)


def _across(written: nodes.Across, names: Names) -> Made:
    over = axis(written.axis, names)
    by, made = _grouped(written.by, names)
    if column_of(over) in [name for name, _ in made]:
        message = f"what is compared across {over} is of many, and so is in no group by {column_of(over)}"
        hint = f"leave {column_of(over)} out behind by"
        raise TqlTypeError("axis_in_by", message, place=written.by[0].place, hint=hint)
    found = [comparison(written.call, names, axis=over)]
    outputs = reduced(found)
    return (Across(over, outputs[0], by),), _behind(made, found, outputs=outputs, names=names)


def _grouped(written: Sequence[nodes.Value], names: Names) -> tuple[tuple[Column, ...], list[tuple[str, Operand]]]:
    """What to group by, as columns and as what can be named behind."""
    operands = [field_or_value(node, names) for node in written]
    for node, operand in zip(written, operands, strict=True):
        if operand.type is Type.LIST:
            message, hint = f"{operand.like.name} is a list: rows are not grouped by it", "ask whether it contains one"
            raise TqlTypeError("type_mismatch", message, place=node.place, hint=hint)
    columns = named_columns(written, operands)
    return columns, [(column.name, operand) for column, operand in zip(columns, operands, strict=True)]


def _behind(
    made: list[tuple[str, Operand]], found: Sequence[Reduction], *, outputs: Sequence[Reduced], names: Names
) -> Names:
    """What can be named behind a stage that reduced: groups, results, and results by the whole call."""
    taken = [name for name, _ in made]
    for one, output in zip(found, outputs, strict=True):
        if output.name in taken:
            raise stands_twice(output.name, one.call.place)
        taken.append(output.name)
    results = [(output.name, one.result) for one, output in zip(found, outputs, strict=True)]
    calls = {format_value(one.call): output.name for one, output in zip(found, outputs, strict=True)}
    return behind(names.entity, [*made, *results], also=calls)


_STAGES: dict[type, Callable[[Any, Names], Made]] = {
    nodes.Where: _where,
    nodes.Select: _select,
    nodes.Aggregate: _aggregate,
    nodes.Across: _across,
    nodes.OrderBy: _order_by,
    nodes.Top: _top,
    nodes.First: _first,
    nodes.Last: _last,
    nodes.Limit: _limit,
}
