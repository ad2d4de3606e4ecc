"""Rows on their way through the stages of a query, before they are text: what they are made of, kept, ordered, cut."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import Entity
from rankscope_query_api.tql_sql.answer import Made, Shown
from rankscope_query_api.tql_sql.expressions import alias, all_of, from_query
from rankscope_query_api.tql_sql.order import SortKey, order_by, row_order
from rankscope_query_api.tql_sql.scope import Scope
from rankscope_query_api.tql_sql.writing import text_of


@dataclass(frozen=True, slots=True)
class Cut:
    """A limit with stages behind it.

    Attributes:
        conditions: What rows had to fulfil before.
        keys: The order they were in.
        count: How many of them are left.
    """

    conditions: tuple[Expr, ...]
    keys: tuple[SortKey, ...]
    count: int


@dataclass
class Frame:
    """Rows, and what the stages so far made of them.

    Attributes:
        scope: Where values are read.
        rows: Where the rows' own fields are read: other than `scope` behind a select.
        base: A SELECT of nothing yet from them, asked for when all values are compiled.
        order: Their own total order.
        keys: The order they are in, which ends in `order`.
        shown: What an item holds; None: all that a row of the entity does.
        conditions: What they must fulfil, behind the last cut.
        cuts: The limits with stages behind them.
        limit: Most of them; None: all.
        is_grouped: Whether they are groups.
        is_in_order: Whether `keys` end in the order of an entity's rows.
        level: How many groupings lie below.
    """

    scope: Scope
    rows: Scope
    base: Callable[[], exp.Select]
    order: list[SortKey]
    keys: list[SortKey]
    shown: tuple[Shown, ...] | None
    conditions: list[Expr] = field(default_factory=list[Expr])
    cuts: list[Cut] = field(default_factory=list[Cut])
    limit: int | None = None
    is_grouped: bool = False
    is_in_order: bool = False
    level: int = 0

    @property
    def made(self) -> Made:
        """The columns that the stages made, by what further stages call them."""
        return {shown.column: shown for shown in self.shown or ()}

    def cut(self) -> None:
        """Makes the limit so far one of the rows that further stages see."""
        if self.limit is not None:
            self.cuts.append(Cut(tuple(self.conditions), tuple(self.keys), self.limit))
            self.conditions, self.limit = [], None

    def select(self) -> exp.Select:
        """A SELECT of nothing yet from what is left of the rows."""
        select = self.base()
        for at, cut in enumerate(self.cuts):
            inner = _where(select, cut.conditions).select(exp.Star(), copy=False)
            inner.order_by(*order_by(list(cut.keys)), copy=False)
            inner.limit(self.scope.parameters.bind(cut.count, "UInt64"), copy=False)
            select = exp.Select(from_=from_query(inner, f"cut_{self.level}_{at}"))
        return _where(select, self.conditions)


def _where(select: exp.Select, conditions: Sequence[Expr]) -> exp.Select:
    if conditions:
        select.where(all_of(conditions), copy=False)
    return select


@functools.cache
def row_order_text(entity: Entity) -> str:
    """The total order of an entity's rows as the items of an ORDER BY; written once, for every query ends in it."""
    return ", ".join(text_of(item) for item in order_by(row_order(entity)))


@functools.cache
def row_keys(entity: Entity, first: int) -> str:
    """The keys of that order as columns `k<first>` and so on."""
    keys = enumerate(row_order(entity), first)
    return ", ".join(text_of(alias(key.value, f"k{at}")) for at, key in keys)
