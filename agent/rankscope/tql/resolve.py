"""From names to fields: which entity a query is about, and what each name of it stands for."""

import dataclasses
from collections.abc import Iterator

from rankscope.tql import nodes
from rankscope.tql.checked import Key, Operand
from rankscope.tql.errors import TqlTypeError, TqlUnsupported
from rankscope.tql.fields import FIELDS, LATER, MAPS, SCOPES, SECTION, Entity, Origin, Type, scope_entity
from rankscope.tql.formatting import field_text
from rankscope.tql.nearest import nearest, nearest_scope

JOIN_KEYS = {"run.id", "launch", "rank", "step", "project"}
"""Fields on which rows of two entities of one predicate agree: a condition on them holds of both."""


def fields_in(node: object) -> Iterator[nodes.FieldRef]:
    """Every field under a node, in the order of the text."""
    if isinstance(node, nodes.FieldRef):
        yield node
    elif isinstance(node, tuple):
        for item in node:  # pyright: ignore[reportUnknownVariableType] -- a tuple of nodes
            yield from fields_in(item)  # pyright: ignore[reportUnknownArgumentType] -- any node
    elif isinstance(node, nodes.Node):
        for attribute in dataclasses.fields(node):
            yield from fields_in(getattr(node, attribute.name))


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
    if field.name in FIELDS or field.scope in MAPS or field.name == "count":
        return
    scoped = f"{field.scope}.{field.key.partition('.')[0]}"
    later = LATER.get(field.name) or LATER.get(scoped) or LATER.get(field.scope)
    if later:
        raise TqlUnsupported("unsupported", f"{field_text(field)} is not answered yet: {later}", place=field.place)
    if field.scope and field.scope not in SCOPES:
        known = tuple(sorted(SCOPES))
        message = f"{field.scope} is no scope"
        raise TqlTypeError("unknown_scope", message, place=field.place, expected=known, hint=_scope_hint(field))
    near = field.key if field.key in FIELDS else nearest(field.name)
    siblings = tuple(name for name in FIELDS if name.rpartition(".")[0] == field.scope)
    message, hint = (
        f"there is no field {field_text(field)}",
        f"did you mean {near}?" if near else "name one that there is",
    )
    raise TqlTypeError("unknown_field", message, place=field.place, expected=() if near else siblings, hint=hint)


def _scope_hint(field: nodes.FieldRef) -> str:
    """What to write for a name with a wrong scope: a field only if what follows the dot is like one of its own."""
    scope = nearest_scope(field.scope)
    near = field.key if field.key in FIELDS else nearest(f"{scope}.{field.key}" if scope else field.name)
    if near and (not scope or near.startswith(f"{scope}.") or near == field.key):
        return f"did you mean {near}?"
    return f"did you mean the scope {scope}?" if scope else "write a scope before the dot, as in tensor.l2"


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
