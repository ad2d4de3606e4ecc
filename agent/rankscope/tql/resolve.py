"""From names to fields: which entity a query is about, and what each name of it stands for."""

import dataclasses

from rankscope.tql import nodes
from rankscope.tql.checked import Operand
from rankscope.tql.errors import TqlTypeError, TqlUnsupported
from rankscope.tql.fields import FIELDS, MAPS, SECTION, Entity, Origin, Type, scope_entity
from rankscope.tql.formatting import field_text
from rankscope.tql.mentions import fields_in
from rankscope.tql.typed import Key
from rankscope.tql.unknown import refuse_unknown as refuse_unknown_name

JOIN_KEYS = {"run.id", "launch", "rank", "step", "project"}
"""Fields on which rows of two entities of one predicate agree: a condition on them holds of both."""


def entities_in(node: object) -> tuple[Entity, ...]:
    """The entities that a part of the query names, each once, in the order of the text."""
    found = (scope_entity(field.scope) for field in fields_in(node) if field.name not in FIELDS or field.scope)
    return tuple(dict.fromkeys(entity for entity in found if entity is not None))


def entity_of(query: nodes.Query) -> Entity:
    """What the rows of the query are: the entity that its selection names first.

    Raises:
        TqlTypeError: Nothing in the query says whether it is about tensors, spans or something else.
    """
    for field in fields_in(query.selection):
        refuse_unknown(field)
    named = entities_in(query.selection) or entities_in(query.stages)
    if not named:
        hint = "add exists(tensor.name) for statistics, or exists(span.name) for spans"
        message = "nothing says what the rows are: every field here belongs to all kinds of rows"
        expected = tuple(f"a field of {entity}." for entity in SECTION)
        raise TqlTypeError("no_entity", message, place=query.selection.place, expected=expected, hint=hint)
    return named[0]


def _is_looked_up(field: nodes.FieldRef) -> bool:
    origins = [known.origin for known in FIELDS.get(field.name, {}).values()]
    return (
        field.scope == "mesh"
        or field.name.startswith("run.config.")
        or field.name in {"tensor.shape", "tensor.log2_hist", "trace.id"}
        or bool(origins and Origin.ROW not in origins)
    )


def refuse_unknown(field: nodes.FieldRef) -> None:
    """Raise unless the name is a field of some entity.

    Raises:
        TqlUnsupported: The language has it, this version does not answer it.
        TqlTypeError: There is no such field; the nearest one is the hint.
    """
    if _is_looked_up(field):
        raise TqlUnsupported("unsupported", f"{field_text(field)} is not answered yet", place=field.place)
    if field.name != "count":
        refuse_unknown_name(field)


@dataclasses.dataclass(frozen=True, slots=True)
class Resolver:
    """Looks names up for one entity."""

    entity: Entity

    def operand(self, field: nodes.FieldRef, *, key_type: Type = Type.ATTRIBUTE) -> Operand:
        """The column or map key a name stands for.

        Args:
            field: The name.
            key_type: What the value of an attribute is to be, from what it is compared with.

        Raises:
            TqlTypeError: The entity has no such field.
        """
        refuse_unknown(field)
        if field.scope in MAPS:
            if self.entity is not Entity.SPAN:
                raise self._foreign(field)
            return Key(field.scope, field.key, Type.FLOAT if field.scope == "metric" else key_type)
        found = FIELDS.get(field.name, {}).get(self.entity)
        if found is None:
            raise self._foreign(field)
        return found

    def _foreign(self, field: nodes.FieldRef) -> TqlTypeError:
        message = f"{field_text(field)} is no field of {self.entity} rows"
        owners = tuple(FIELDS.get(field.name, {Entity.SPAN: None}))
        expected = tuple(f"a query about {owner} rows" for owner in owners)
        return TqlTypeError("foreign_field", message, place=field.place, expected=expected)
