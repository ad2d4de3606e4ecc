"""From names to values: what a field, a key or a column of an earlier stage stands for."""

import dataclasses
from collections.abc import Mapping, Sequence

from rankscope.tql import nodes
from rankscope.tql.errors import Place, TqlTypeError
from rankscope.tql.fields import FIELDS, KEYED, SECTION, Entity, Field, Type
from rankscope.tql.formatting import field_text, format_value
from rankscope.tql.literals import Subject
from rankscope.tql.typed import Key, Output, Value
from rankscope.tql.unknown import key_of, refuse_unknown

_TABLE = {Type.FLOAT: "Float64", Type.STRING: "String", Type.BOOL: "UInt8", Type.ATTRIBUTE: "String"}
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """A value and what a literal beside it must be.

    Attributes:
        value: The value.
        like: A field that holds such values: their type, range and words; its name is what was written.
    """

    value: Value
    like: Field

    @property
    def type(self) -> Type:
        """What the value is."""
        return self.like.type

    @property
    def subject(self) -> Subject:
        """What a literal beside it is measured by."""
        return self.value if isinstance(self.value, Key) else self.like


def described(name: str, kind: Type, entity: Entity, /) -> Field:
    """A field that holds the values of an expression: of its type, in 64 bits."""
    table = _TABLE.get(kind, "Int64")
    low, high = (0, 0) if kind in _TABLE else (_LOWEST, _HIGHEST)
    if kind is Type.TIME:
        time = FIELDS["time"][entity]
        low, high = time.low, time.high
    return Field(name, entity, (), kind, table, low=low, high=high, nullable=True)


def narrowed(operand: Operand, kind: Type) -> Operand:
    """An attribute read as text or as number; anything else as it is."""
    if not isinstance(operand.value, Key) or operand.type is not Type.ATTRIBUTE:
        return operand
    like = described(operand.like.name, kind, operand.like.entity)
    return Operand(dataclasses.replace(operand.value, type=kind), like)


def as_number(operand: Operand) -> Operand:
    """An attribute read as number, and an earlier stage's list as its length; anything else as it is."""
    if isinstance(operand.value, Output) and operand.type is Type.LIST:
        like = described(operand.like.name, Type.INTEGER, operand.like.entity)
        return Operand(Output(operand.value.name, Type.INTEGER), like)
    return narrowed(operand, Type.FLOAT)


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """What can be named in one place of a query.

    Attributes:
        entity: What the rows are.
        columns: What an earlier stage made, by what may be written for it; None: the rows are as stored.
        shown: The columns' own names, for people.
    """

    entity: Entity
    columns: Mapping[str, Operand] | None = None
    shown: tuple[str, ...] = ()

    @property
    def is_of_rows(self) -> bool:
        """Whether the rows are as stored, with all their fields."""
        return self.columns is None

    def made(self, node: nodes.Value) -> Operand | None:
        """The column that an earlier stage made of just this expression."""
        return self.columns.get(format_value(node)) if self.columns is not None else None

    def field(self, field: nodes.FieldRef) -> Operand:
        """The value a name stands for.

        Raises:
            TqlTypeError: There is no such field, or these rows have none.
        """
        if self.columns is not None:
            raise self._no_column(field)
        refuse_unknown(field)
        found = self._key(field) if key_of(field) else FIELDS[field.name].get(self.entity)
        if found is None:
            raise self._foreign(field)
        return found if isinstance(found, Operand) else Operand(found, found)

    def _key(self, field: nodes.FieldRef) -> Operand | None:
        scope, key = key_of(field) or ("", "")
        if self.entity not in _WITH_KEYS[scope]:
            return None
        kind = KEYED[scope][0]
        return Operand(Key(scope, key, kind), described(field_text(field), kind, self.entity))

    def _foreign(self, field: nodes.FieldRef) -> TqlTypeError:
        scope = (key_of(field) or ("", ""))[0]
        owners = _WITH_KEYS[scope] if scope else tuple(FIELDS[field.name])
        message = f"{field_text(field)} is no field of {self.entity} rows"
        expected = tuple(f"a query about {owner} rows" for owner in owners)
        hint = f"leave it out, or ask about {owners[0]} rows"
        return TqlTypeError("foreign_field", message, place=field.place, expected=expected, hint=hint)

    def _no_column(self, field: nodes.FieldRef) -> TqlTypeError:
        message = f"{field_text(field)} is no column behind the stages before"
        hint = "name one of them, or write the stage that needs it before"
        return TqlTypeError("unknown_field", message, place=field.place, expected=self.shown, hint=hint)

    def refuse_made(self, what: str, place: Place, *, hint: str) -> None:
        """Raise where the rows are no longer those stored.

        Raises:
            TqlTypeError: An earlier stage made other rows of them.
        """
        if not self.is_of_rows:
            message = f"{what} is of stored rows, and a stage before made others of them"
            raise TqlTypeError("not_of_rows", message, place=place, hint=hint)


_WITH_KEYS: Mapping[str, tuple[Entity, ...]] = {
    "attr": (Entity.SPAN,),
    "metric": (Entity.SPAN,),
    "run.config": tuple(Entity),
    "mesh": tuple(SECTION),
    "hit.seen": (Entity.HIT,),
}
"""The entities whose rows have the keys of each scope."""


def behind(entity: Entity, made: Sequence[tuple[str, Operand]], *, also: Mapping[str, str] | None = None) -> Names:
    """What can be named behind a stage that made other rows.

    Args:
        entity: What the rows were.
        made: The stage's columns: name and what it held.
        also: What else may be written for a column, and its name.
    """
    columns = {name: _output(name, operand) for name, operand in made}
    written = {text: columns[name] for text, name in (also or {}).items()}
    return Names(entity, {**written, **columns}, tuple(columns))


def _output(name: str, operand: Operand) -> Operand:
    """A column as the stages behind see it; an attribute is a text by then."""
    kind = Type.STRING if operand.type is Type.ATTRIBUTE else operand.type
    return Operand(Output(name, kind), dataclasses.replace(operand.like, name=name, type=kind))
