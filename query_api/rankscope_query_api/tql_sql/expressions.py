"""SQL expressions in the words of the language: functions, constants, columns, and the few spellings that matter."""

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.expressions.core import Expr


def call(function: str, *arguments: Expr) -> Expr:
    """A ClickHouse function by its own name."""
    return exp.Anonymous(this=function, expressions=list(arguments))


def number(value: int) -> Expr:
    """A small constant of the compiler's own; what a query says is bound instead."""
    digits = exp.Literal(this=str(abs(value)), is_string=False)
    return exp.Neg(this=digits) if value < 0 else digits


def constant(value: int | str) -> Expr:
    """An absent word as SQL: a number, or the empty string."""
    return number(value) if isinstance(value, int) else exp.Literal.string(value)


def column(name: str) -> Expr:
    """A column; names come from the field table only."""
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def all_of(parts: Sequence[Expr]) -> Expr:
    """The conjunction; of none, true. The parts become its own: what is used elsewhere too is given as a copy."""
    return exp.and_(*parts, copy=False) if parts else number(1)


def any_of(parts: Sequence[Expr]) -> Expr:
    """The disjunction of at least one; the parts become its own."""
    return exp.or_(*parts, copy=False)


def rows_of(name: str) -> exp.Table:
    """A table, or what WITH has named. Given its name as text, sqlglot would parse that."""
    return exp.Table(this=exp.Identifier(this=name, quoted=False))


def from_query(query: Expr, name: str) -> exp.From:
    """What a SELECT reads from: a sub-select under a name, which becomes its own."""
    return exp.From(this=called(query, name))


def called(query: Expr, name: str) -> exp.Subquery:
    """A sub-select under a name, which becomes its own."""
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.Identifier(this=name, quoted=False)))


def alias(value: Expr, name: str) -> Expr:
    """The expression under a name of the compiler's own."""
    return exp.Alias(this=value, alias=exp.Identifier(this=name, quoted=False))


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
