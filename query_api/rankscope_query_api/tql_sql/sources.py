"""Every value of a typed query as SQL that says both what it is and when it is there."""

from rankscope.tql import typed
from rankscope_query_api.tql_sql.scope import Scope, Source


def source(value: typed.Value, scope: Scope) -> Source:
    """How a value of a row is read."""
    raise NotImplementedError(value, scope)
