"""From stages to typed stages: each says what becomes of the rows, and what can be named behind it."""

from collections.abc import Callable, Sequence
from typing import Any

from rankscope.tql import nodes
from rankscope.tql.conditions import condition
from rankscope.tql.errors import Place, TqlTypeError
from rankscope.tql.fields import ORDERED, Type
from rankscope.tql.formatting import format_value
from rankscope.tql.literals import with_article
from rankscope.tql.naming import Names, Operand, as_number, behind, narrowed
from rankscope.tql.typed import Column, Filter, Key, Limit, Order, OrderKey, Select, Stage
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
        raise TqlTypeError("unordered", message, place=node.place, expected=tuple(sorted(ORDERED)))
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


_STAGES: dict[type, Callable[[Any, Names], Made]] = {
    nodes.Where: _where,
    nodes.Select: _select,
    nodes.OrderBy: _order_by,
    nodes.Top: _top,
    nodes.First: _first,
    nodes.Last: _last,
    nodes.Limit: _limit,
}
