"""Checked tree to SQL: one statement for a page, one for the total. Only bound values, only columns of the table.

>>> from rankscope import tql
>>> compiled = compile_query(tql.check(tql.parse("tensor.nan_count > 0 | first")), project="default")
>>> compiled.parameters["p0"]
0
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.expressions.core import Expr

from rankscope.tql.checked import Checked
from rankscope.tql.fields import Entity
from rankscope_query_api.tql_sql.columns import Column, Item, items
from rankscope_query_api.tql_sql.cursor import decode, encode, fingerprint
from rankscope_query_api.tql_sql.expressions import call
from rankscope_query_api.tql_sql.guard import check_statement
from rankscope_query_api.tql_sql.ordering import beyond, order_by
from rankscope_query_api.tql_sql.parameters import Value
from rankscope_query_api.tql_sql.statements import Plan, Planner, alias

DEFAULT_PAGE = 100
"""Rows of a page where the caller does not say."""

_SPACE_IN_PLACEHOLDER = re.compile(r"\{(\w+): ")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A query ready to be sent.

    Attributes:
        sql: The page: columns `c0`, `c1`, … and behind them the sort keys `k0`, `k1`, …
        parameters: Values of its `{name:Type}` placeholders.
        count_sql: One row with one number: the rows that match, whatever the page and the limit.
        count_parameters: Values of its placeholders.
        entity: What the rows are, or what is counted.
        columns: What the items hold.
        limit: Most rows that the query itself asks for over all pages; None: all.
        mark: What ties a cursor to this query.
        returned: Rows on the pages before.
    """

    sql: str
    parameters: dict[str, Value]
    count_sql: str
    count_parameters: dict[str, Value]
    entity: Entity
    columns: tuple[Column, ...]
    limit: int | None
    mark: str
    returned: int

    def items(self, rows: Sequence[Sequence[Any]]) -> list[Item]:
        """The rows of the answer as objects; times as ISO-8601 beside `_ns`, ids as hexadecimal digits."""
        return items(self.columns, rows)

    def total(self, count: int) -> int:
        """Rows over all pages, from the number that `count_sql` gave."""
        return count if self.limit is None else min(count, self.limit)

    def next(self, rows: Sequence[Sequence[Any]], *, count: int) -> str | None:
        """The cursor of the page after these rows; None where there is none."""
        returned = self.returned + len(rows)
        if not rows or returned >= self.total(count):
            return None
        return encode(self.mark, returned, row=list(rows[-1][len(self.columns) :]))


def compile_query(
    checked: Checked,
    *,
    project: str,
    run: str | None = None,
    limit: int = DEFAULT_PAGE,
    after: str | None = None,
) -> Compiled:
    """The SQL of a checked query.

    Args:
        checked: What `rankscope.tql.check` made of it.
        project: The only project whose rows are read.
        run: The only run whose rows are read; None: all of the project.
        limit: Most rows of this page, at least 1.
        after: `next` of the page before; None: the first page.

    Raises:
        InvalidRequestError: `after` is no cursor of this query.
    """
    planner = Planner(checked, project, run)
    plan = planner.plan()
    counted = dict(planner.parameters.values)
    count = _text(plan.base.select(alias(call("count"), "total")))
    mark = _mark(plan, f"{count} {sorted(counted.items())} {checked.limit}")
    page, returned = plan.base.select(*_selected(plan), copy=False), 0
    if after is not None:
        cursor = decode(after, mark, keys=plan.keys)
        page, returned = (
            page.where(beyond(plan.keys, cursor.row, parameters=planner.parameters), copy=False),
            cursor.returned,
        )
    left = limit if checked.limit is None else max(0, min(limit, checked.limit - returned))
    page.order_by(*order_by(plan.keys), copy=False)
    page.limit(planner.parameters.named("limit", left, table="UInt64"), copy=False)
    sql = _text(page)
    for statement in (sql, count):
        check_statement(statement, with_run=run is not None)
    values = planner.parameters.values
    return Compiled(sql, values, count, counted, checked.entity, plan.columns, checked.limit, mark, returned)


def _selected(plan: Plan) -> list[Expr]:
    shown = [alias(known.value, f"c{at}") for at, known in enumerate(plan.columns)]
    return [*shown, *(alias(key.value, f"k{at}") for at, key in enumerate(plan.keys))]


def _mark(plan: Plan, text: str) -> str:
    order = " ".join(item.sql(dialect="clickhouse") for item in order_by(plan.keys))
    return fingerprint(f"{text} {order}")


def _text(statement: Expr) -> str:
    """SQL as clickhouse-connect looks for placeholders in it: `{name:Type}` without a space."""
    return _SPACE_IN_PLACEHOLDER.sub(r"{\1:", statement.sql(dialect="clickhouse", pretty=True))
