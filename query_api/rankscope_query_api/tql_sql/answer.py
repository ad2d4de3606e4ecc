"""What an answer's items hold: which expressions are selected, and how each value is written.

Values stay plain Python here; the service's JSON conventions (strings for `_ns`, NaN) are applied
where a response is made.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot.expressions.core import Expr

from rankscope.tql.fields import FIELDS, SECTION, Entity, Field, Origin, Type
from rankscope.tql.typed import Apply, Arithmetic, Column, Constant, History, Key, Output, Value
from rankscope_proto import names
from rankscope_query_api.answers import iso_time
from rankscope_query_api.tql_sql.expressions import alias, call, column
from rankscope_query_api.tql_sql.scope import Scope
from rankscope_query_api.tql_sql.sources import source
from rankscope_query_api.tql_sql.writing import text_of

Item = dict[str, Any]
"""One object of an answer."""

Writer = Callable[[Item, str, Any], None]
"""Adds a selected value to an item, under the column's name or what it makes of it."""

_HEADER = ("run.id", "launch", "rank")
_IDENTITY = ("run.id", "trace.id")
_FLAGS = {Entity.TENSOR: names.TENSOR_FLAGS, Entity.SPAN: names.SPAN_FLAGS}
_LISTS = {Entity.TENSOR: ("shape", "log2_hist")}
_PAYLOADS = {"inputs", "outputs", "error_preview"}
"""Long texts; a span's own page shows them."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One value of an item.

    Attributes:
        name: Its key in the item; a time adds `<name>_ns`, a duration has `<name>_ns` only.
        value: The expression selected for it.
        write: Adds the value to an item.
        column: What the stages behind call it; "": no stage made it.
    """

    name: str
    value: Expr
    write: Writer
    column: str = ""


Made = Mapping[str, Shown]
"""The columns that stages made so far, by what is written for them."""


def _write_plain(item: Item, name: str, value: object, /) -> None:
    item[name] = value


def write_list(item: Item, name: str, value: Sequence[int], /) -> None:
    """Writes a list, also an empty one."""
    item[name] = list(value)


def _write_some(item: Item, name: str, value: Sequence[int], /) -> None:
    if value:
        item[name] = list(value)


def _where_present(write: Writer) -> Writer:
    """Leaves the key out where a row has no value: most statistics are absent from most rows."""

    @functools.wraps(write)
    def write_present(item: Item, name: str, value: object, /) -> None:
        if value is not None:
            write(item, name, value)

    return write_present


def _write_bool(item: Item, name: str, value: int | None, /) -> None:
    item[name] = None if value is None else bool(value)


def _write_duration(item: Item, name: str, value: int | None, /) -> None:
    item[f"{name}_ns"] = value


def _write_time(item: Item, name: str, value: int | None, /) -> None:
    item[name] = None if value is None else iso_time(value)
    item[f"{name}_ns"] = value


def _write_id(item: Item, name: str, value: int | None, /) -> None:
    item[name] = None if value is None else f"{value:016x}"


def _write_parent(item: Item, name: str, value: int | None, /) -> None:
    _write_id(item, name, value or None)


def _write_trace_id(item: Item, name: str, value: int | None, /) -> None:
    item[name] = None if value is None else f"{value:032x}"


def _write_maps(item: Item, name: str, value: tuple[dict[str, str], dict[str, float]], /) -> None:
    item[name] = {**value[0], **value[1]}


_BY_TYPE: Mapping[Type, Writer] = {Type.TIME: _write_time, Type.DURATION: _write_duration, Type.BOOL: _write_bool}


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything that a row of an entity shows.

    Attributes:
        columns: Its values.
        text: They as the columns `c0`, `c1`, … of a SELECT; written once, for it took most of a query's time.
    """

    columns: tuple[Shown, ...]
    text: str


@functools.cache
def whole_row(entity: Entity) -> Whole:
    """Everything that a row of the entity shows; nothing of it is looked up elsewhere, and nothing is bound."""
    columns = _of_row(Scope(entity, "", None))
    return Whole(columns, ", ".join(text_of(alias(one.value, f"c{at}")) for at, one in enumerate(columns)))


def _of_row(scope: Scope) -> tuple[Shown, ...]:
    entity = scope.entity
    if entity not in SECTION:
        own = (by_entity[entity] for by_entity in FIELDS.values() if entity in by_entity)
        return tuple(of_field(field, scope) for field in own if field.name in _IDENTITY or _is_own(field))
    known = [FIELDS[name][entity] for name in _HEADER]
    for declared in SECTION[entity].fields:
        known += _fields_of_column(entity, declared.name)
    if entity is Entity.SPAN:
        known.insert(len(_HEADER), FIELDS["span.trace_id"][entity])
    found = [_sparse(of_field(field, scope), field) for field in known]
    found += [Shown(name, column(name), _write_some) for name in _LISTS.get(entity, ())]
    if entity in _FLAGS:
        found.append(Shown("flags", column("flags"), _write_flags(_FLAGS[entity])))
    return (*found, *_maps(entity))


def _sparse(shown: Shown, field: Field) -> Shown:
    if not (field.nullable and field.name.startswith("tensor.")):
        return shown
    return replace(shown, write=_where_present(shown.write))


def _fields_of_column(entity: Entity, name: str) -> list[Field]:
    """The field that shows a column, at most one."""
    if name in _PAYLOADS or name in _LISTS.get(entity, ()):
        return []
    named = (field[entity] for field in FIELDS.values() if entity in field)
    return [field for field in named if field.column == (name,) and not field.bit][:1]


def _maps(entity: Entity) -> tuple[Shown, ...]:
    if entity is Entity.HIT:
        return (Shown("seen", call("tuple", column("seen_texts"), column("seen")), _write_maps),)
    if entity is not Entity.SPAN:
        return ()
    both = call("tuple", column("attributes"), column("numbers"))
    return (Shown("attributes", both, _write_maps), Shown("metrics", column("metrics"), _write_plain))


def _write_flags(bits: dict[str, int]) -> Writer:
    def write(item: Item, name: str, value: int, /) -> None:
        item[name] = [flag for flag, bit in bits.items() if value & bit]

    return write


def of_field(field: Field, scope: Scope) -> Shown:
    """A field of a row as the row shows it: an empty word stays one."""
    is_step = field.name == "step" and field.origin is Origin.ROW
    side = source(field, scope)
    shown = side.value if side.absent is not None else side.or_null
    return Shown(key_of(field), column("step") if is_step else shown, _writer_of_field(field))


def of_column(named: Column, scope: Scope, *, made: Made) -> Shown:
    """One value that a query selects; a column that a stage made stays written as it is."""
    value = named.value
    if isinstance(value, Output):
        known = made[value.name]
        return replace(known, name=name_of_column(named, made), column=named.name)
    if isinstance(value, Field) and value.origin is Origin.ROW:
        return replace(of_field(value, scope), column=named.name)
    return Shown(name_of_column(named, made), source(value, scope).or_null, writer_of(value, made), named.name)


def name_of_column(named: Column, made: Made) -> str:
    """The key under which items hold a value that a query names."""
    match named.value:
        case Field():
            return key_of(named.value)
        case Output(name=name) if name == named.name:
            return made[name].name
        case _:
            return named.name


def key_of(field: Field) -> str:
    """The key under which items hold a field: its column's name, where it is a column of the row."""
    if field.name == "trace.id":
        return "trace_id"
    if field.origin is not Origin.ROW:
        return field.name.rpartition(".")[2] if _is_own(field) else field.name
    return field.column[0] if len(field.column) == 1 and not field.bit else field.name.rpartition(".")[2]


def _is_own(field: Field) -> bool:
    """Whether it belongs to rows that are traces or runs themselves."""
    return field.origin.value == field.entity.value


def writer_of(value: Value, made: Made) -> Writer:
    """How a value is written."""
    match value:
        case Field():
            return _writer_of_field(value)
        case Apply(function="coalesce" | "min" | "max"):
            return writer_of(value.arguments[0], made)
        case History():
            return _BY_TYPE.get(value.type) or writer_of(value.value, made)
        case Output() if value.type is not Type.INTEGER:  # of a list it is the length
            return made[value.name].write
        case Constant() | Key() | Arithmetic() | Apply() | Output():
            return writer_of_type(value.type)


def writer_of_type(kind: Type) -> Writer:
    """How a computed value of a type is written."""
    return _BY_TYPE.get(kind, _write_plain)


def _writer_of_field(field: Field) -> Writer:
    if field.type is Type.WORD:
        return _write_word(field.vocabulary)
    if field.type is Type.ID and field.table == "UInt64":
        if len(field.column) == 2:
            return _write_trace_id
        return _write_id if field.absent is None else _write_parent
    return write_list if field.type is Type.LIST else _BY_TYPE.get(field.type, _write_plain)


def _write_word(vocabulary: type[names.Code]) -> Writer:
    def write(item: Item, name: str, value: int | None, /) -> None:
        item[name] = None if value is None else vocabulary.of(value)

    return write


_KEYS: Mapping[Writer, tuple[str, ...]] = {_write_time: ("{}", "{}_ns"), _write_duration: ("{}_ns",)}
"""Writer -> what it makes of the name of a value; all others take the name."""


def keys(columns: Sequence[Shown]) -> list[str]:
    """The keys that items of these columns have or, where a value is missing, could have; in their order."""
    made = [(shown.name, _KEYS.get(inspect.unwrap(shown.write), ("{}",))) for shown in columns]
    return list(dict.fromkeys(form.format(name) for name, forms in made for form in forms))


def items(columns: Sequence[Shown], rows: Sequence[Sequence[Any]]) -> list[Item]:
    """The rows as objects; values behind the columns' own are left out."""
    found: list[Item] = []
    for row in rows:
        item: Item = {}
        for shown, value in zip(columns, row, strict=False):
            shown.write(item, shown.name, value)
        found.append(item)
    return found
