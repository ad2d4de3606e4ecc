"""Which fields a part of a query names, and so which entity the query is about."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import TypeVar

from rankscope.tql import nodes
from rankscope.tql.errors import Place, TqlTypeError
from rankscope.tql.fields import SECTION, Entity, scope_entity
from rankscope.tql.unknown import refuse_unknown

_Node = TypeVar("_Node", bound=nodes.Node)


def fields_in(node: object) -> Iterator[nodes.FieldRef]:
    """Every field under a node, in the order of the text."""
    return _of_kind(nodes.FieldRef, node)


def calls_in(node: object) -> Iterator[nodes.Call]:
    """Every call under a node, in the order of the text."""
    return _of_kind(nodes.Call, node)


def operators_in(node: object) -> Iterator[nodes.Arithmetic]:
    """Every arithmetic operator under a node, in the order of the text."""
    return _of_kind(nodes.Arithmetic, node)


def deepest_operators(node: object) -> tuple[nodes.Arithmetic, ...]:
    """The longest row of arithmetic operators under a node of which each has the next inside of it."""
    below = max((deepest_operators(part) for part in _under(node)), key=len, default=())
    return (node, *below) if isinstance(node, nodes.Arithmetic) else below


def _under(node: object) -> Iterator[object]:
    if isinstance(node, tuple):
        yield from node
    elif isinstance(node, nodes.Node):
        yield from (getattr(node, attribute) for attribute in _parts(type(node)))


def _of_kind(kind: type[_Node], node: object) -> Iterator[_Node]:
    if isinstance(node, kind):
        yield node
    for part in _under(node):
        yield from _of_kind(kind, part)


@functools.cache
def _parts(kind: type[nodes.Node]) -> tuple[str, ...]:
    """The attributes of a node that can hold other nodes."""
    plain = (str, bool, Place)
    return tuple(attribute.name for attribute in dataclasses.fields(kind) if attribute.type not in plain)


def entities_in(node: object) -> tuple[Entity, ...]:
    """The entities whose rows a part of the query names, each once, in the order of the text.

    Where `trace.` stands beside another entity's fields, it is of spans.
    """
    scopes = (field.scope for field in fields_in(node))
    found = (Entity.SPAN if scope == Entity.TRACE else scope_entity(scope) for scope in scopes)
    return tuple(dict.fromkeys(entity for entity in found if entity is not None))


def entity_of(query: nodes.Query) -> Entity:
    """What the rows of the query are: the entity that its selection names first.

    Raises:
        TqlTypeError: Nothing in the query says whether it is about tensors, spans or something else.
        TqlUnsupported: It names a scope that no row can have.
    """
    for field in fields_in(query.selection):
        refuse_unknown(field)
    if isinstance(query.selection, nodes.TraceSet):
        return Entity.TRACE
    if isinstance(query.selection, nodes.Structure):
        return Entity.SPAN
    for part in (query.selection, query.stages):
        if any(scope_entity(field.scope) for field in fields_in(part)):
            return entities_in(part)[0]
    scopes = {field.scope for field in fields_in(query)}
    for entity in (Entity.TRACE, Entity.RUN):
        if entity in scopes:
            return entity
    raise _of_no_entity(query)


def _of_no_entity(query: nodes.Query) -> TqlTypeError:
    return TqlTypeError(
        "no_entity",
        "nothing says what the rows are: every field here belongs to all kinds of rows",
        place=query.selection.place,
        expected=tuple(f"a field of {entity}." for entity in SECTION),
        hint="add exists(tensor.name) for statistics, or exists(span.name) for spans",
    )
