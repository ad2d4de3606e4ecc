"""Syntax tree to checked tree. Promises: what passes can be executed; what does not says why, and where."""

from rankscope.tql import nodes
from rankscope.tql.checked import AllOf, Checked, Companion, Condition
from rankscope.tql.errors import TqlUnsupported
from rankscope.tql.fields import Entity
from rankscope.tql.predicates import check_predicate
from rankscope.tql.resolve import JOIN_KEYS, Resolver, entities_in, entity_of, fields_in
from rankscope.tql.stages import Pipeline


def check(query: nodes.Query) -> Checked:
    """Resolve names, types, units and ranges of a query.

    Args:
        query: A tree from `parse`, or built by hand from the same nodes.

    Raises:
        TqlTypeError: A name, type, unit or value does not fit.
        TqlUnsupported: Part of the language, but not answered by this version.
    """
    selection = _predicate_of(query)
    entity = entity_of(query)
    pipeline = Pipeline(Resolver(entity))
    for stage in query.stages:
        pipeline.add(stage)
    conjuncts = [part for where in (selection, *pipeline.wheres) for part in _conjuncts(where)]
    return Checked(
        entity,
        _all([part for part in conjuncts if _belongs(part, entity)], entity),
        _companion(conjuncts, entity),
        pipeline.group,
        pipeline.select,
        pipeline.order,
        pipeline.backwards,
        pipeline.limit,
    )


def _predicate_of(query: nodes.Query) -> nodes.Predicate:
    """The selection, if it is a predicate of single rows."""
    selection = query.selection
    if isinstance(selection, nodes.Structure):
        relation = selection.relations[0]
        message = f"relating spans with {relation.operator} is not answered yet"
        raise TqlUnsupported("unsupported", message, place=relation.place)
    if isinstance(selection, nodes.TraceSet):
        message = "relating spans of one trace with {} is not answered yet"
        raise TqlUnsupported("unsupported", message, place=selection.place)
    return selection


def _conjuncts(node: nodes.Predicate) -> list[nodes.Predicate]:
    """The parts of which all must be true; a condition on them can be checked one by one."""
    if isinstance(node, nodes.And):
        return [part for operand in node.operands for part in _conjuncts(operand)]
    return [node]


def _belongs(part: nodes.Predicate, entity: Entity) -> bool:
    """Whether a conjunct is about the query's own rows; raises where it is about two kinds at once."""
    named = entities_in(part)
    if len(named) > 1:
        kinds = " and ".join(f"{scope}." for scope in named)
        message = f"{kinds} in one comparison, or joined by or and not, is not answered yet"
        raise TqlUnsupported("unsupported", message, place=part.place, hint="join them by and")
    return not named or named[0] is entity


def _all(parts: list[nodes.Predicate], entity: Entity) -> Condition:
    resolver = Resolver(entity)
    checked = [check_predicate(part, resolver) for part in parts]
    return checked[0] if len(checked) == 1 else AllOf(tuple(checked))


def _companion(conjuncts: list[nodes.Predicate], entity: Entity) -> Companion | None:
    """The semi-join that the conjuncts about another entity make."""
    foreign = [part for part in conjuncts if not _belongs(part, entity)]
    others = entities_in(tuple(foreign))
    if not others:
        return None
    if {entity, *others} != {Entity.TENSOR, Entity.SPAN}:
        kinds = ", ".join(f"{scope}." for scope in (entity, *others))
        message = f"joining {kinds} is not answered: only tensor. and span. join, on run, launch, rank and step"
        raise TqlUnsupported("unsupported", message, place=foreign[0].place)
    shared = [part for part in conjuncts if {field.name for field in fields_in(part)} <= JOIN_KEYS]
    return Companion(others[0], _all([*shared, *foreign], others[0]))
