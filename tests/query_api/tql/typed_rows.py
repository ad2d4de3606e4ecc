"""Typed values and conditions asked of a store, as the compiler asks them, without a query's text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clickhouse_connect.driver.client import Client
from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql import typed
from rankscope.tql.fields import FIELDS, Entity, Field, Type
from rankscope_query_api.tql_sql.order import order_by, row_order
from rankscope_query_api.tql_sql.predicates import keep
from rankscope_query_api.tql_sql.scope import Scope
from rankscope_query_api.tql_sql.sources import source


def field(name: str, entity: Entity) -> Field:
    """A field of an entity."""
    return FIELDS[name][entity]


def integer(value: int) -> typed.Constant:
    """An integer as a query writes it."""
    return typed.Constant(value, Type.INTEGER, "Int64" if value < 2**63 else "UInt64")


def real(value: float) -> typed.Constant:
    """A float as a query writes it."""
    return typed.Constant(value, Type.FLOAT, "Float64")


def text(value: str) -> typed.Constant:
    """A string as a query writes it."""
    return typed.Constant(value, Type.STRING, "String")


def written(statement: Expr) -> str:
    """A statement as clickhouse-connect looks for placeholders in it."""
    return re.sub(r"\{(\w+): ", r"{\1:", statement.sql(dialect="clickhouse"))


@dataclass(frozen=True)
class TypedRows:
    """Rows of a store, asked for by typed trees."""

    client: Client

    def statement(
        self,
        entity: Entity,
        values: Sequence[typed.Value],
        *,
        where: typed.Condition | None = None,
        run: str | None = None,
    ) -> tuple[str, Scope]:
        """The SQL of the values of the rows that fulfil a condition, in TQL's order; project `default`."""
        scope = Scope(entity, "default", run)
        shown = [exp.alias_(source(value, scope).or_null, f"c{at}") for at, value in enumerate(values)]
        kept = None if where is None else keep(where, scope)
        select = scope.rows().select(*shown).order_by(*order_by(row_order(entity)))
        return written(select if kept is None else select.where(kept)), scope

    def ask(
        self,
        entity: Entity,
        *values: typed.Value,
        where: typed.Condition | None = None,
        run: str | None = None,
    ) -> list[tuple[Any, ...]]:
        """The rows."""
        text, scope = self.statement(entity, values, where=where, run=run)
        rows = self.client.query(text, parameters=scope.parameters.values).result_rows
        return [tuple(row) for row in rows]

    def column(self, entity: Entity, value: typed.Value, **how: Any) -> list[Any]:
        """One value of each row."""
        return [row[0] for row in self.ask(entity, value, **how)]
