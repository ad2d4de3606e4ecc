"""Syntax tree to typed tree. Promises: what passes can be executed; what does not says why, and where.

>>> from rankscope import tql
>>> check(tql.parse("tensor.nan_count > 0 | first")).entity
<Entity.TENSOR: 'tensor'>
"""

from rankscope.tql import nodes
from rankscope.tql.conditions import condition
from rankscope.tql.errors import TqlUnsupported
from rankscope.tql.fields import Entity
from rankscope.tql.history import HISTORIES
from rankscope.tql.limits import refuse_too_much
from rankscope.tql.mentions import calls_in, entities_in, entity_of, fields_in
from rankscope.tql.naming import Names
from rankscope.tql.pipeline import stage
from rankscope.tql.typed import (
    AllOf,
    Companion,
    Condition,
    Related,
    Relation,
    Rows,
    Source,
    Stage,
    Traces,
    Typed,
)
from rankscope.tql.words import RelationOperator, SetOperator

JOIN_KEYS = {"run.id", "launch", "rank", "step", "project"}
"""Fields on which rows of two entities of one predicate agree: a condition on them holds of both."""

_RELATIONS: dict[str, RelationOperator] = {
    ">": ">",
    ">>": ">>",
    "<": "<",
    "<<": "<<",
    "~": "~",
    "!>": "!>",
    "!>>": "!>>",
}
_SETS: dict[str, SetOperator] = {"and": "and", "or": "or", "without": "without"}


def check(query: nodes.Query) -> Typed:
    """Resolve names, types, units and ranges of a query.

    Args:
        query: A tree from `parse`, or built by hand from the same nodes.

    Raises:
        TqlTypeError: A name, type, unit or value does not fit, or there is too much of something.
        TqlUnsupported: It names what no row can have, or joins rows that do not join.
    """
    refuse_too_much(query)
    entity = entity_of(query)
    source, rest = _source(query, entity)
    names, stages = Names(entity), list[Stage]()
    for written in rest:
        made, names = stage(written, names)
        stages += made
    return Typed(source, tuple(stages), entity)


def _source(query: nodes.Query, entity: Entity) -> tuple[Source, tuple[nodes.Stage, ...]]:
    """Where the rows come from, and the stages that are no part of that."""
    selection, names = query.selection, Names(Entity.SPAN)
    if isinstance(selection, nodes.Structure):
        relations = tuple(
            Relation(_RELATIONS[one.operator], condition(one.predicate, names)) for one in selection.relations
        )
        return Related(condition(selection.first, names), relations), query.stages
    if isinstance(selection, nodes.TraceSet):
        return Traces(condition(selection.first, names), _sets(selection, names)), query.stages
    wheres = _leading_wheres(query)
    parts = [part for where in (selection, *(one.predicate for one in wheres)) for part in _conjuncts(where)]
    return _rows(parts, entity), query.stages[len(wheres) :]


def _sets(selection: nodes.TraceSet, names: Names) -> tuple[tuple[SetOperator, Condition], ...]:
    return tuple((_SETS[one.operator], condition(one.predicate, names)) for one in selection.relations)


def _leading_wheres(query: nodes.Query) -> list[nodes.Where]:
    """The stages that only say more of which rows."""
    found: list[nodes.Where] = []
    for written in query.stages:
        if not isinstance(written, nodes.Where):
            break
        found.append(written)
    return found


def _conjuncts(node: nodes.Predicate) -> list[nodes.Predicate]:
    """The parts of which all must be true; a condition on them can be checked one by one."""
    if isinstance(node, nodes.And):
        return [part for operand in node.operands for part in _conjuncts(operand)]
    return [node]


def _rows(parts: list[nodes.Predicate], entity: Entity) -> Rows:
    foreign = [part for part in parts if not _belongs(part, entity)]
    own = [part for part in parts if part not in foreign]
    others = entities_in(tuple(foreign))
    if others and {entity, *others} != {Entity.TENSOR, Entity.SPAN}:
        kinds = ", ".join(f"{scope}." for scope in (entity, *others))
        message = f"{kinds} do not join: only tensor. and span. do, on run, launch, rank and step"
        raise TqlUnsupported("unsupported", message, place=foreign[0].place, hint="ask in two queries")
    shared = [part for part in parts if _is_shared(part)] if others else []
    companions = [Companion(other, _all([*shared, *foreign], other)) for other in others]
    return Rows(entity, _all(own, entity), tuple(companions))


def _is_shared(part: nodes.Predicate) -> bool:
    """Whether a conjunct holds of the joined rows, too; what looks back does so in a series of its own."""
    names = {field.name for field in fields_in(part)}
    return names <= JOIN_KEYS and not {call.function for call in calls_in(part)} & {*HISTORIES}


def _belongs(part: nodes.Predicate, entity: Entity) -> bool:
    """Whether a conjunct is about the query's own rows; raises where it is about two kinds at once."""
    named = () if entity in {Entity.TRACE, Entity.RUN} else entities_in(part)
    if len(named) > 1:
        kinds = " and ".join(f"{scope}." for scope in named)
        message = f"{kinds} in one comparison, or joined by or and not, do not join"
        raise TqlUnsupported("unsupported", message, place=part.place, hint="join them by and")
    return not named or named[0] is entity


def _all(parts: list[nodes.Predicate], entity: Entity) -> Condition:
    names = Names(entity)
    found = [condition(part, names) for part in parts]
    return found[0] if len(found) == 1 else AllOf(tuple(found))
