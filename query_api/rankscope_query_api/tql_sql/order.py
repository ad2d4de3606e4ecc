"""The total order of an answer, and the page that comes after a given row."""

from dataclasses import dataclass

from sqlglot.expressions.core import Expr

from rankscope.tql.fields import Entity
from rankscope_query_api.tql_sql.parameters import Parameters, Value
from rankscope_query_api.tql_sql.scope import Source


@dataclass(frozen=True, slots=True)
class SortKey:
    """One part of the order.

    Attributes:
        value: What is compared; never NULL or NaN.
        table: ClickHouse type to bind a row's value as.
        descending: Greatest first.
    """

    value: Expr
    table: str
    descending: bool = False

    def reversed(self) -> "SortKey":
        """The same key from the other end."""
        return SortKey(self.value, self.table, not self.descending)


def row_order(entity: Entity) -> list[SortKey]:
    """The total order of an entity's rows."""
    raise NotImplementedError(entity)


def value_order(side: Source, *, is_descending: bool) -> list[SortKey]:
    """The keys of one `order by` value: first the rows that have it, then NaN, then those without."""
    raise NotImplementedError(side, is_descending)


def order_by(keys: list[SortKey]) -> list[Expr]:
    """The keys as the items of an ORDER BY."""
    raise NotImplementedError(keys)


def beyond(keys: list[SortKey], row: list[Value], *, parameters: Parameters) -> Expr:
    """True of the rows that come after a given one."""
    raise NotImplementedError(keys, row, parameters)
