"""Conditions of a typed query as SQL that is 0 or 1, never NULL."""

from sqlglot.expressions.core import Expr

from rankscope.tql import typed
from rankscope_query_api.tql_sql.scope import Scope


def condition(node: typed.Condition, scope: Scope) -> Expr:
    """The condition as an expression that is 0 or 1 for every row."""
    raise NotImplementedError(node, scope)


def keep(node: typed.Condition, scope: Scope) -> Expr:
    """The condition of a filter of the entity's rows; what it says of whole series also narrows the rows of windows."""
    raise NotImplementedError(node, scope)
