"""The last look at a statement before it is sent, knowing nothing of how it was made.

It parses the text again and refuses it unless every table in it is one of ours, read where the
project (and the run, if one was asked for) is compared with its bound parameter, and unless no
text stands in it but the empty string: what users wrote must be in the parameters.
"""

from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import SECTION

_TABLES = {section.table for section in SECTION.values()}
_BOUND = {"project": "project", "run_id": "run"}


class UnguardedStatementError(AssertionError):
    """The compiler made a statement that must not be sent: a fault of ours, never of a query."""


def check_statement(sql: str, *, with_run: bool) -> None:
    """Refuse a statement that could read another project's rows.

    Args:
        sql: One SELECT of the ClickHouse dialect.
        with_run: Whether the run has to be restricted too.

    Raises:
        UnguardedStatementError: A condition is missing, or text stands in the SQL.
    """
    tree = sqlglot.parse_one(sql, dialect="clickhouse")
    texts = [literal for literal in tree.find_all(exp.Literal) if literal.is_string and literal.this]
    if texts or not isinstance(tree, exp.Select):
        raise UnguardedStatementError(f"text inside the statement: {sql}")
    wanted = set(_BOUND) if with_run else {"project"}
    for table in tree.find_all(exp.Table):
        if table.name not in _TABLES or table.db:
            raise UnguardedStatementError(f"the table {table.name} is not for queries: {sql}")
        missing = wanted - set(_restricted(table))
        if missing:
            raise UnguardedStatementError(f"{table.name} is read without {', '.join(sorted(missing))}: {sql}")


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    """The conditions of which all must hold."""
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        yield from _conjuncts(inner.left)
        yield from _conjuncts(inner.right)
    else:
        yield inner


def _restricted(table: exp.Table) -> Iterator[str]:
    """The columns that the table's own SELECT compares with the parameter that is meant for them."""
    select = table.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    for part in _conjuncts(where.this) if isinstance(where, exp.Where) else ():
        if isinstance(part, exp.EQ) and isinstance(part.this, exp.Column):
            bound = part.expression
            if isinstance(bound, exp.Placeholder) and bound.name == _BOUND.get(part.this.name):
                yield part.this.name
