"""Typed query to SQL: one statement for a page, one for the total. Only bound values, only columns of the tables.

Each is checked a second time before it leaves, by `guard`, which knows nothing of how it was made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankscope.tql.fields import Entity
from rankscope.tql.typed import Typed
from rankscope_query_api.tql_sql.answer import Item, Shown, items, keys, whole_row
from rankscope_query_api.tql_sql.cursor import decode, encode, fingerprint
from rankscope_query_api.tql_sql.expressions import alias, call
from rankscope_query_api.tql_sql.frames import Frame, row_keys, row_order_text
from rankscope_query_api.tql_sql.guard import check_statement
from rankscope_query_api.tql_sql.mentioned import is_pinned
from rankscope_query_api.tql_sql.order import SortKey, beyond
from rankscope_query_api.tql_sql.parameters import Value
from rankscope_query_api.tql_sql.pipeline import frame_of
from rankscope_query_api.tql_sql.scope import Scope
from rankscope_query_api.tql_sql.writing import text_of

_COUNT = "SELECT count() AS total"

DEFAULT_PAGE = 100
"""Rows of a page where the caller does not say."""


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
        page: Most rows that this page can have.
        is_small: Whether few enough rows are expected that a page holds them all.
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
    page: int
    is_small: bool

    @property
    def keys(self) -> list[str]:
        """The keys that items of the answer can have: the same on each of its pages."""
        return keys(self.columns)

    def items(self, rows: Sequence[Sequence[Any]]) -> list[Item]:
        """The rows of the answer as objects; times as ISO-8601 beside `_ns`, ids as hexadecimal digits."""
        return items(self.columns, rows)

    def is_whole(self, rows: int) -> bool:
        """Whether a page of so many rows is the whole answer, so that nothing is left to be counted."""
        return self.returned == 0 and (rows < self.page or rows == self.limit)

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
    statement = frame.select().select(alias(call("count"), "total"), copy=False)
    values = scope.parameters.values
    counted = dict(values)
    count = text_of(statement)
    order = _order(frame)
    mark = fingerprint(f"{count} {order} {sorted(counted.items())} {frame.limit}")
    returned, found = 0, count
    if after is not None:
        cursor = decode(after, mark, keys=frame.keys)
        statement.where(beyond(frame.keys, cursor.row, parameters=scope.parameters), copy=False)
        returned, found = cursor.returned, text_of(statement)
    left = limit if frame.limit is None else max(0, min(limit, frame.limit - returned))
    most = text_of(scope.parameters.named("limit", left, table="UInt64"))
    # What follows the columns is the same in both statements, and most of the work.
    sql = f"SELECT {_selected(frame)}{found.removeprefix(_COUNT)} ORDER BY {order} LIMIT {most}"
    check_statement(sql, count, with_run=run is not None)
    shown = whole_row(query.entity).columns if frame.shown is None else frame.shown
    is_small = is_pinned(query) or (frame.limit is not None and frame.limit <= limit)
    return Compiled(sql, values, count, counted, query.entity, shown, frame.limit, mark, returned, left, is_small)


def _selected(frame: Frame) -> str:
    """The columns of the items, and the sort keys of the next page's cursor."""
    if frame.shown is None:
        shown = whole_row(frame.scope.entity).text
    else:
        shown = ", ".join(f"{text_of(known.value)} AS c{at}" for at, known in enumerate(frame.shown))
    own = _own_keys(frame)
    keys = [f"{text_of(key.value)} AS k{at}" for at, key in enumerate(own)]
    if frame.is_in_order:
        keys.append(row_keys(frame.scope.entity, len(own)))
    return ", ".join([shown, *keys])


def _order(frame: Frame) -> str:
    """What the page is ordered by."""
    parts = [f"{text_of(key.value)} {'DESC' if key.descending else 'ASC'}" for key in _own_keys(frame)]
    if frame.is_in_order:
        parts.append(row_order_text(frame.scope.entity))
    return ", ".join(parts)


def _own_keys(frame: Frame) -> list[SortKey]:
    """The keys before those of the rows' total order, which is written once for all queries."""
    return frame.keys[: len(frame.keys) - len(frame.order)] if frame.is_in_order else frame.keys
