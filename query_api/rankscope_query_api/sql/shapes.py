"""What a part of a statement is, by its shape alone."""

from sqlglot import exp
from sqlglot.expressions.core import Expr

QUERIES = (exp.Select, exp.Union, exp.Except, exp.Intersect)
"""Nodes that are a SELECT of their own."""

_CONSTANTS = (exp.Literal, exp.Placeholder, exp.Neg, exp.Boolean, exp.Null, exp.Tuple, exp.Paren, exp.Cast)
"""What a list behind IN is made of; a cast, for `DATE '2026-11-30'`."""


def is_query(node: object) -> bool:
    """Whether a node is a SELECT, in brackets or not."""
    return isinstance(node, (*QUERIES, exp.Subquery))


def is_given_before(cte: exp.CTE, table: Expr) -> bool:
    """Whether a table stands in the SELECT whose WITH gives the name, or in a later part of that WITH."""
    given_in = cte.parent
    inside: Expr | None = table
    while inside is not None and inside.parent is not given_in and inside is not given_in:
        if given_in is not None and inside is given_in.parent:
            return True
        inside = inside.parent
    if inside is None or given_in is None:
        return False
    parts = list[Expr](given_in.args.get("expressions") or [])
    return any(part is inside for part in parts[[part is cte for part in parts].index(True) + 1 :])


def is_select(node: object) -> bool:
    """Whether a node is a SELECT in one pair of brackets at most, and its first word SELECT or WITH."""
    inside: object = node.this if isinstance(node, exp.Subquery) else node
    while isinstance(inside, exp.SetOperation):
        inside = inside.this
    return isinstance(inside, exp.Select)


def is_constant(node: Expr) -> bool:
    """Whether nothing of a node depends on what is read."""
    return all(isinstance(one, (*_CONSTANTS, exp.DataType, exp.DataTypeParam, exp.Var)) for one in node.walk())
