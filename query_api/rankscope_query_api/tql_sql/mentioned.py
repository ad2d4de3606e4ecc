"""What a query mentions that its answer is judged by: keys that may never have been seen, steps, and tables."""

from collections.abc import Iterator
from dataclasses import replace

from rankscope.tql.fields import SECTION, Entity, Field, Type
from rankscope.tql.typed import (
    AllOf,
    Between,
    Companion,
    Compare,
    Condition,
    Constant,
    Contains,
    Exists,
    Filter,
    FloatTest,
    Key,
    Matches,
    OneOf,
    Related,
    Rows,
    Typed,
    Value,
)
from rankscope_query_api.tql_sql.explain import walked
from rankscope_query_api.tql_sql.expressions import alias, number
from rankscope_query_api.tql_sql.guard import check_statement
from rankscope_query_api.tql_sql.parameters import Statement
from rankscope_query_api.tql_sql.predicates import condition
from rankscope_query_api.tql_sql.scope import Scope
from rankscope_query_api.tql_sql.writing import text_of

_HOLDERS = {"attr": Entity.SPAN, "metric": Entity.SPAN, "hit.seen": Entity.HIT, "run.config": Entity.RUN}
"""Whose rows have the keys of each scope; coordinates of a mesh are not here, for few rows would hold them."""

_COMPARED = {"collective.wait", "collective.wait_charged", "collective.skew"}

_MAX_STEP = 2**63 - 1


def keys_in_doubt(query: Typed, *, is_empty: bool) -> tuple[Key, ...]:
    """The keys that a query names and that no row may have, each once, as text or number.

    Args:
        query: The query.
        is_empty: Whether its answer is empty; if not, a key that every row of the answer must have was seen.
    """
    named = (_either(node) for node in walked(query) if isinstance(node, Key) and node.scope in _HOLDERS)
    found = dict.fromkeys(named)
    if not is_empty:
        for key in _certain(query):
            found.pop(key, None)
    return tuple(found)


def first_with(key: Key, *, project: str, run: str | None) -> Statement:
    """A statement of one row if some row has a key, else of none."""
    scope = Scope(_HOLDERS[key.scope], project, run)
    has_it = condition(Exists(key), scope)
    statement = scope.rows().where(has_it, copy=False).select(alias(number(1), "found"), copy=False)
    sql = text_of(statement.limit(1, copy=False))
    check_statement(sql, with_run=run is not None)
    return Statement(sql, scope.parameters.values)


def compares_clocks(query: Typed) -> bool:
    """Whether it sets the arrivals of ranks at a collective against each other."""
    return any(isinstance(node, Field) and node.name in _COMPARED for node in walked(query))


def steps_of(query: Typed) -> tuple[int, int]:
    """The least and the greatest step that rows of the query can have; 0 and 2**63 - 1 where it does not say."""
    low, high = 0, _MAX_STEP
    for part in _conjuncts(query):
        least, greatest = _steps(part)
        low, high = max(low, least), min(high, greatest)
    return low, high


def is_pinned(query: Typed) -> bool:
    """Whether its rows are of one step of one rank."""
    low, high = steps_of(query)
    return low == high and any(_names_rank(part) for part in _conjuncts(query))


def _names_rank(part: Condition) -> bool:
    match part:
        case Compare("==", Field(name="rank"), Constant()):
            return True
        case _:
            return False


def sections_of(query: Typed) -> tuple[str, ...]:
    """Whose gaps could have held what decides the answer: the rows' and of those beside them; none named: all."""
    if query.entity is Entity.RUN:
        return ()
    beside = (node.entity for node in walked(query) if isinstance(node, Companion))
    spans = {Entity.TRACE: Entity.SPAN}
    return tuple(dict.fromkeys(SECTION[spans.get(one, one)].name for one in (query.entity, *beside)))


def _either(key: Key) -> Key:
    return replace(key, type=Type.ATTRIBUTE) if key.scope in {"attr", "run.config"} else key


def _certain(query: Typed) -> Iterator[Key]:
    """Keys without which no row is in the answer."""
    for part in _conjuncts(query):
        match part:
            case Compare():
                sides: tuple[Value, ...] = (part.left, part.right)
            case OneOf() | Between() | Matches() | Contains() | Exists() | FloatTest():
                sides = (part.value,)
            case _:
                sides = ()
        yield from (_either(side) for side in sides if isinstance(side, Key))


def _conjuncts(query: Typed) -> Iterator[Condition]:
    """The conditions that all rows of the source fulfil, and those of the filters at once behind it."""
    match query.source:
        case Rows():
            yield from _parts(query.source.condition)
        case Related():
            yield from _parts(query.source.relations[-1].condition)
        case _:
            pass
    for stage in query.stages:
        if not isinstance(stage, Filter):
            return
        yield from _parts(stage.condition)


def _parts(whole: Condition) -> Iterator[Condition]:
    if isinstance(whole, AllOf):
        for operand in whole.operands:
            yield from _parts(operand)
    else:
        yield whole


def _steps(part: Condition) -> tuple[int, int]:
    match part:
        case Compare(operator, Field(name="step"), Constant(value=int(step))):
            return _compared(operator, step)
        case Between(Field(name="step"), Constant(value=int(low)), Constant(value=int(high))):
            return low, high
        case OneOf(Field(name="step"), choices):
            steps = [int(choice.value) for choice in choices]
            return min(steps), max(steps)
        case _:
            return 0, _MAX_STEP


def _compared(operator: str, step: int) -> tuple[int, int]:
    bounds = {"==": (step, step), ">=": (step, _MAX_STEP), ">": (step + 1, _MAX_STEP)}
    return bounds.get(operator) or {"<=": (0, step), "<": (0, step - 1)}.get(operator, (0, _MAX_STEP))
