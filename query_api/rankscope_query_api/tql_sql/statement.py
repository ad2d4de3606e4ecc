"""Typed query to SQL: one statement for a page, one for the total. Only bound values, only columns of the tables.

Each is checked a second time before it leaves, by `guard`, which knows nothing of how it was made.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import Entity
from rankscope.tql.typed import Typed
from rankscope_query_api.tql_sql.answer import Item, Shown, items
from rankscope_query_api.tql_sql.cursor import decode, encode, fingerprint
from rankscope_query_api.tql_sql.expressions import call
from rankscope_query_api.tql_sql.frames import Frame
from rankscope_query_api.tql_sql.guard import check_statement
from rankscope_query_api.tql_sql.order import beyond, order_by
from rankscope_query_api.tql_sql.parameters import Value
from rankscope_query_api.tql_sql.pipeline import frame_of
from rankscope_query_api.tql_sql.scope import Scope

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
        entity: What the rows are, or what groups are made of.
        columns: What the items hold.
        limit: Most rows that the query itself asks for over all pages; None: all.
        mark: What ties a cursor to this query.
        returned: Rows on the pages before.
        joins: What else was read to answer it, for people.
    """

    sql: str
    parameters: dict[str, Value]
    count_sql: str
    count_parameters: dict[str, Value]
    entity: Entity
    columns: tuple[Shown, ...]
    limit: int | None
    mark: str
    returned: int
    joins: tuple[str, ...]

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
    query: Typed,
    *,
    project: str,
    run: str | None = None,
    limit: int = DEFAULT_PAGE,
    after: str | None = None,
) -> Compiled:
    """The SQL of a query.

    Args:
        query: What `rankscope.tql.check` made of it.
        project: The only project whose rows are read.
        run: The only run whose rows are read; None: all of the project.
        limit: Most rows of this page, at least 1.
        after: `next` of the page before; None: the first page.

    Raises:
        InvalidRequestError: `after` is no cursor of this query.
    """
    scope = Scope(query.entity, project, run)
    frame = frame_of(query, scope)
    base = frame.select()
    values = scope.parameters.values
    counted = dict(values)
    count = _text(base.select(exp.alias_(call("count"), "total")))
    mark = _mark(frame, f"{count} {sorted(counted.items())} {frame.limit}")
    returned = 0
    if after is not None:
        cursor = decode(after, mark, keys=frame.keys)
        base.where(beyond(frame.keys, cursor.row, parameters=scope.parameters), copy=False)
        returned = cursor.returned
    left = limit if frame.limit is None else max(0, min(limit, frame.limit - returned))
    base.select(*_selected(frame), copy=False).order_by(*order_by(frame.keys), copy=False)
    base.limit(scope.parameters.named("limit", left, table="UInt64"), copy=False)
    sql = _text(base)
    for statement in (sql, count):
        check_statement(statement, with_run=run is not None)
    return Compiled(sql, values, count, counted, query.entity, frame.shown, frame.limit, mark, returned, scope.joins)


def _selected(frame: Frame) -> list[Expr]:
    shown = [exp.alias_(known.value, f"c{at}") for at, known in enumerate(frame.shown)]
    return [*shown, *(exp.alias_(key.value, f"k{at}") for at, key in enumerate(frame.keys))]


def _mark(frame: Frame, text: str) -> str:
    order = " ".join(item.sql(dialect="clickhouse") for item in order_by(frame.keys))
    return fingerprint(f"{text} {order}")


def _text(statement: Expr) -> str:
    """SQL as clickhouse-connect looks for placeholders in it: `{name:Type}` without a space."""
    return _SPACE_IN_PLACEHOLDER.sub(r"{\1:", statement.sql(dialect="clickhouse", pretty=True))
