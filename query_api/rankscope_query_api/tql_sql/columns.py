"""What an answer's items hold: which expressions are selected, and how each value is written.

Values stay plain Python here; the service's JSON conventions (strings for `_ns`, NaN) are applied
where a response is made.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot.expressions.core import Expr

from rankscope.tql.checked import Key, Operand
from rankscope.tql.fields import FIELDS, SECTION, Entity, Field, Type
from rankscope.tql.literals import name_of
from rankscope_proto import names
from rankscope_query_api.tql_sql.expressions import call, column, one_spelling, source
from rankscope_query_api.tql_sql.parameters import Parameters

Item = dict[str, Any]
"""One object of an answer."""

Writer = Callable[[Item, str, Any], None]
"""Adds a selected value to an item, under the column's name or what it makes of it."""

_SECOND_NS = 1_000_000_000
_HEADER = ("run.id", "launch", "rank")
_FLAGS = {Entity.TENSOR: names.TENSOR_FLAGS, Entity.SPAN: names.SPAN_FLAGS}
_LISTS = {Entity.TENSOR: ("shape", "log2_hist")}
_PAYLOADS = {"inputs", "outputs", "error_preview"}
"""Long texts; a span's own page shows them."""


@dataclass(frozen=True, slots=True)
class Column:
    """One value of an item.

    Attributes:
        name: Its key in the item; a time adds `<name>_ns`, a duration has `<name>_ns` only.
        value: The expression selected for it.
        write: Adds the value to an item.
    """

    name: str
    value: Expr
    write: Writer


def _write_plain(item: Item, name: str, value: object, /) -> None:
    item[name] = value


def _write_list(item: Item, name: str, value: Sequence[int], /) -> None:
    if value:
        item[name] = list(value)


def _where_present(write: Writer) -> Writer:
    """Leaves the key out where a row has no value: most statistics are absent from most rows."""

    def write_present(item: Item, name: str, value: object, /) -> None:
        if value is not None:
            write(item, name, value)

    return write_present


def _write_duration(item: Item, name: str, value: int | None, /) -> None:
    item[f"{name}_ns"] = value


def _write_time(item: Item, name: str, value: int | None, /) -> None:
    item[name] = None if value is None else iso_time(value)
    item[f"{name}_ns"] = value


def _write_id(item: Item, name: str, value: int | None, /) -> None:
    item[name] = None if value is None else f"{value:016x}"


def _write_parent(item: Item, name: str, value: int | None, /) -> None:
    _write_id(item, name, value or None)


def _write_trace_id(item: Item, name: str, value: int, /) -> None:
    item[name] = f"{value:032x}"


def _write_maps(item: Item, name: str, value: tuple[dict[str, str], dict[str, float]], /) -> None:
    item[name] = {**value[0], **value[1]}


def iso_time(time_ns: int) -> str:
    """Ns since the epoch as ISO-8601 in UTC, nine decimals."""
    whole, fraction = divmod(time_ns, _SECOND_NS)
    moment = dt.datetime.fromtimestamp(whole, dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def of_row(entity: Entity, parameters: Parameters) -> tuple[Column, ...]:
    """Everything that a row of the entity shows."""
    known = [FIELDS[name][entity] for name in _HEADER]
    for declared in SECTION[entity].fields:
        known += _fields_of_column(entity, declared.name)
    if entity is Entity.SPAN:
        known.insert(len(_HEADER), FIELDS["span.trace_id"][entity])
    found = [_sparse(of_operand(field, parameters), field) for field in known]
    found += [Column(name, column(name), _write_list) for name in _LISTS.get(entity, ())]
    if entity in _FLAGS:
        found.append(Column("flags", column("flags"), _write_flags(_FLAGS[entity])))
    return (*found, *_maps(entity))


def _sparse(shown: Column, field: Field) -> Column:
    if not (field.nullable and field.name.startswith("tensor.")):
        return shown
    return Column(shown.name, shown.value, _where_present(shown.write))


def _fields_of_column(entity: Entity, name: str) -> list[Field]:
    """The field that shows a column, at most one."""
    if name in _PAYLOADS or name in _LISTS.get(entity, ()):
        return []
    named = (field[entity] for field in FIELDS.values() if entity in field)
    return [field for field in named if field.column == (name,)][:1]


def _maps(entity: Entity) -> tuple[Column, ...]:
    if entity is not Entity.SPAN:
        return ()
    both = call("tuple", column("attributes"), column("numbers"))
    return (Column("attributes", both, _write_maps), Column("metrics", column("metrics"), _write_plain))


def _write_flags(bits: dict[str, int]) -> Writer:
    def write(item: Item, name: str, value: int, /) -> None:
        item[name] = [flag for flag, bit in bits.items() if value & bit]

    return write


def of_operand(operand: Operand, parameters: Parameters, *, grouped: bool = False) -> Column:
    """One field or key as a column.

    Args:
        operand: What a query names.
        parameters: Where keys are bound.
        grouped: Whether a missing value is to be NULL, as a group of its own.
    """
    side = source(operand, parameters)
    if grouped and side.is_float:
        side = replace(side, value=one_spelling(side.value))
    if isinstance(operand, Key):
        return Column(name_of(operand), side.or_null, _write_plain)
    if operand.name == "step" and not grouped:
        return Column("step", column("step"), _write_plain)
    value = side.or_null if grouped else side.value
    return Column(_name(operand), value, _writer(operand))


def of_count(value: Expr) -> Column:
    """The number of rows of a group."""
    return Column("count", value, _write_plain)


def _name(field: Field) -> str:
    return field.column[0] if len(field.column) == 1 else field.name.rpartition(".")[2]


def _writer(field: Field) -> Writer:
    if field.type is Type.WORD:
        return _write_word(field.vocabulary)
    if field.type is Type.ID and field.table == "UInt64":
        if len(field.column) == 2:
            return _write_trace_id
        return _write_id if field.absent is None else _write_parent
    return {Type.TIME: _write_time, Type.DURATION: _write_duration}.get(field.type, _write_plain)


def _write_word(vocabulary: type[names.Code]) -> Writer:
    def write(item: Item, name: str, value: int | None, /) -> None:
        item[name] = None if value is None else vocabulary.of(value)

    return write


def items(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> list[Item]:
    """The rows as objects; values behind the columns' own are left out."""
    found: list[Item] = []
    for row in rows:
        item: Item = {}
        for shown, value in zip(columns, row, strict=False):
            shown.write(item, shown.name, value)
        found.append(item)
    return found
