"""SQL expressions in the words of the language: functions, constants, columns, and the few spellings that matter."""

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.expressions.core import Expr

_SPACE_IN_PLACEHOLDER = re.compile(r"\{(\w+): ")
"""clickhouse-connect looks for placeholders without one: `{name:Type}`."""


def call(function: str, *arguments: Expr) -> Expr:
    """A ClickHouse function by its own name."""
    return exp.Anonymous(this=function, expressions=list(arguments))


def number(value: int) -> Expr:
    """A small constant of the compiler's own; what a query says is bound instead."""
    return exp.Neg(this=exp.Literal.number(-value)) if value < 0 else exp.Literal.number(value)


def constant(value: int | str) -> Expr:
    """An absent word as SQL: a number, or the empty string."""
    return number(value) if isinstance(value, int) else exp.Literal.string(value)


def column(name: str) -> Expr:
    """A column; names come from the field table only."""
    return exp.column(exp.to_identifier(name, quoted=True))


def all_of(parts: Sequence[Expr]) -> Expr:
    """The conjunction; of none, true. The parts become its own: what is used elsewhere too is given as a copy."""
    return exp.and_(*parts, copy=False) if parts else number(1)


def alias(value: Expr, name: str) -> Expr:
    """The expression under a name of the compiler's own."""
    return exp.Alias(this=value, alias=exp.Identifier(this=name, quoted=False))


def text_of(expression: Expr) -> str:
    """The expression as SQL; it is not to be used any more."""
    return _SPACE_IN_PLACEHOLDER.sub(r"{\1:", expression.sql(dialect="clickhouse", copy=False))


def one_spelling(value: Expr) -> Expr:
    """A float as a key of groups: GROUP BY compares bits, so -0.0 and the many NaN would be groups of their own."""
    nan = exp.Div(this=number(0), expression=number(0))
    return call("if", call("isNaN", value.copy()), nan, exp.Add(this=value.copy(), expression=number(0)))


def step() -> Expr:
    """The step, -1 where there is none, such that the tables' sorting key `ifNull(step, -1)` prunes.

    Without `toInt64` it does not on 26.9: `allow_key_condition_coalesce_rewrite` takes a compared
    `ifNull` apart before the key is looked at, and every granule of the run is read (measured:
    245 of 245 for `ifNull(step, -1) = 300`, 1 of 245 so).
    """
    return call("toInt64", call("ifNull", column("step"), number(-1)))


def has_key(name: str, key: Expr) -> Expr:
    """Whether the map column has the key."""
    return call("mapContains", column(name), key.copy())


def at_key(name: str, key: Expr) -> Expr:
    """The value under the key."""
    return exp.Bracket(this=column(name), expressions=[key.copy()])
