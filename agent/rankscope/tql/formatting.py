"""Syntax tree to text: the one spelling of a query, such that `parse(format(tree)) == tree`."""

import re
from collections.abc import Callable
from typing import Any

from rankscope.tql import nodes

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_SUM, _PRODUCT, _FACTOR = 1, 2, 3
_OR, _AND, _NOT = 1, 2, 3
_STRENGTH: dict[type, int] = {nodes.Or: _OR, nodes.And: _AND, nodes.Not: _NOT}


def format_query(query: nodes.Query) -> str:
    """The query as text, on one line unless a string holds a line break.

    Args:
        query: A tree from `parse`, or built by hand from the same nodes.
    """
    return " | ".join([_selection(query.selection), *(_STAGES[type(stage)](stage) for stage in query.stages)])


def _selection(selection: nodes.Predicate | nodes.Structure | nodes.TraceSet) -> str:
    if isinstance(selection, nodes.Structure):
        relations = (f" {relation.operator} {_predicate(relation.predicate)}" for relation in selection.relations)
        return _predicate(selection.first) + "".join(relations)
    if isinstance(selection, nodes.TraceSet):
        sets = (f" {relation.operator} {{{_predicate(relation.predicate)}}}" for relation in selection.relations)
        return f"{{{_predicate(selection.first)}}}" + "".join(sets)
    return _predicate(selection)


def _predicate(node: nodes.Predicate, *, within: int = 0) -> str:
    """A predicate; in parentheses where it binds less than, or as, what it stands within."""
    strength = _STRENGTH.get(type(node), _NOT + 1)
    text = _PREDICATES[type(node)](node)
    return f"({text})" if strength <= within and strength != _NOT else text


def _comparison(node: nodes.Comparison) -> str:
    return f"{format_value(node.left)} {node.operator} {format_value(node.right)}"


def _match(node: nodes.Match) -> str:
    return f"{format_value(node.value)} {node.operator} {format_value(node.pattern)}"


def _contains(node: nodes.Contains) -> str:
    return f"{format_value(node.value)} contains {format_value(node.part)}"


def _membership(node: nodes.Membership) -> str:
    if isinstance(node.among, nodes.Interval):
        return f"{format_value(node.value)} in {format_value(node.among.low)}..{format_value(node.among.high)}"
    return f"{format_value(node.value)} in [{_values(node.among.items)}]"


def _test(node: nodes.Test) -> str:
    return f"{node.question}({format_value(node.value)})"


def _negation(node: nodes.Not) -> str:
    return f"not {_predicate(node.operand, within=_NOT)}"


def _conjunction(node: nodes.And) -> str:
    return " and ".join(_predicate(operand, within=_AND) for operand in node.operands)


def _disjunction(node: nodes.Or) -> str:
    return " or ".join(_predicate(operand, within=_OR) for operand in node.operands)


_PREDICATES: dict[type, Callable[[Any], str]] = {
    nodes.Comparison: _comparison,
    nodes.Match: _match,
    nodes.Contains: _contains,
    nodes.Membership: _membership,
    nodes.Test: _test,
    nodes.Not: _negation,
    nodes.And: _conjunction,
    nodes.Or: _disjunction,
}


def _values(values: tuple[nodes.Value, ...]) -> str:
    return ", ".join(format_value(value) for value in values)


def format_value(node: nodes.Value, *, within: int = 0) -> str:
    """A value as text; in parentheses where it binds no more than what it stands within.

    Args:
        node: The value.
        within: How strongly the operator around it binds; 0: there is none.
    """
    if isinstance(node, nodes.Arithmetic):
        strength = _SUM if node.operator in "+-" else _PRODUCT
        left, right = format_value(node.left, within=strength - 1), format_value(node.right, within=strength)
        text = f"{left} {node.operator} {right}"
        return f"({text})" if strength <= within else text
    if isinstance(node, nodes.Negate):
        return f"-{format_value(node.operand, within=_FACTOR)}"
    return _atom(node)


def _atom(node: nodes.FieldRef | nodes.Number | nodes.Text | nodes.Boolean | nodes.Call) -> str:
    match node:
        case nodes.FieldRef():
            return field_text(node)
        case nodes.Number():
            return node.text + node.unit
        case nodes.Text():
            return _quoted(node.value)
        case nodes.Boolean():
            return "true" if node.value else "false"
        case nodes.Call():
            return f"{node.function}({_values(node.arguments)})"


def field_text(field: nodes.FieldRef) -> str:
    """A field as it is written: a key that is no plain name stands in quotes."""
    if not field.scope:
        return field.key
    key = field.key if _IDENTIFIER.fullmatch(field.key) else _quoted(field.key)
    return f"{field.scope}.{key}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _where(stage: nodes.Where) -> str:
    return f"where {_predicate(stage.predicate)}"


def _select(stage: nodes.Select) -> str:
    return f"select {_values(stage.items)}"


def _aggregate(stage: nodes.Aggregate) -> str:
    return f"{_values(stage.calls)}{_by(stage.by)}{_every(stage.every)}"


def _across(stage: nodes.Across) -> str:
    return f"across {field_text(stage.axis)}: {format_value(stage.call)}{_by(stage.by)}"


def _order_by(stage: nodes.OrderBy) -> str:
    keys = (f"{format_value(key.value)}{' desc' if key.descending else ''}" for key in stage.keys)
    return f"order by {', '.join(keys)}"


def _top(stage: nodes.Top) -> str:
    return f"top {format_value(stage.count)} by {format_value(stage.value)}"


def _first(_stage: nodes.First) -> str:
    return "first"


def _last(_stage: nodes.Last) -> str:
    return "last"


def _limit(stage: nodes.Limit) -> str:
    return f"limit {format_value(stage.count)}"


_STAGES: dict[type, Callable[[Any], str]] = {
    nodes.Where: _where,
    nodes.Select: _select,
    nodes.Aggregate: _aggregate,
    nodes.Across: _across,
    nodes.OrderBy: _order_by,
    nodes.Top: _top,
    nodes.First: _first,
    nodes.Last: _last,
    nodes.Limit: _limit,
}


def _by(values: tuple[nodes.Value, ...]) -> str:
    return f" by {_values(values)}" if values else ""


def _every(every: nodes.Every | None) -> str:
    if every is None:
        return ""
    return f" every {format_value(every.size)}{' steps' if every.in_steps else ''}"
