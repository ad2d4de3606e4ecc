"""Arithmetic and the functions of one row: what they give, and when that is missing.

Integers are computed in 128 bits and are there within 64; `wide` passes the 128 bits on, so that a long sum is narrowed
once. A product of two values within 64 bits, signed or not, that wraps 128 bits never lands within the 64 again. Floats
are computed in 64 bits. Nothing here throws: ClickHouse evaluates an expression also for rows that another condition
leaves out (measured: also for other projects' rows of a granule), so `%` is `moduloOrZero`, and a float is clamped
before it becomes an integer.

What is missing is said beside the value and not wrapped round it: each check names its operands once, so that a text
grows with the square of the depth and not with a power of 3.
"""

from collections.abc import Callable, Sequence

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import Type
from rankscope_query_api.tql_sql.expressions import all_of, any_of, call, number
from rankscope_query_api.tql_sql.scope import Source

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_GREATEST_FLOAT = 9223372036854774784.0
"""The greatest float below 2**63."""

_WHOLE = {Type.INTEGER, Type.DURATION, Type.SIZE, Type.TIME}
"""Types whose values are integers, however they were computed."""

_OPERATORS: dict[str, type[exp.Binary]] = {"+": exp.Add, "-": exp.Sub, "*": exp.Mul, "/": exp.Div}


def combined(operator: str, left: Source, right: Source, /, *, type: Type) -> Source:  # noqa: A002 - as typed.Arithmetic
    """`left operator right`, as `typed.Arithmetic` says.

    Args:
        operator: One of `+ - * / %`.
        left: A number.
        right: A number.
        type: Of the result.
    """
    if operator == "/" or left.is_float or right.is_float:
        return rounded(_of_floats(operator, left, right), type)
    return _of_integers(operator, left, right)


def applied(function: str, arguments: Sequence[Source], *, type: Type) -> Source:  # noqa: A002 - as typed.Apply
    """A function of one row, as `typed.Apply` says."""
    if function == "coalesce":
        return _first_present(arguments)
    if function == "ratio":
        return combined("/", arguments[0], arguments[1], type=type)
    if function in {"min", "max"}:
        return _extreme(function, arguments)
    if function == "abs":
        return _magnitude(arguments[0])
    return _of_one_float(function, arguments[0])


def as_float(side: Source) -> Expr:
    """The value as a 64-bit float; it becomes the caller's."""
    if side.wide is None and side.table == "Float64":
        return side.value
    return call("toFloat64", side.wide or side.value)


def presence(sides: Sequence[Source]) -> list[Expr]:
    """The conditions under which all are there, which become the caller's: a copy at each depth would cost its cube."""
    return [side.present for side in sides if side.present is not None]


def _computed(value: Expr, checks: Sequence[Expr], *, is_float: bool, table: str, wide: Expr | None = None) -> Source:
    present = all_of(list(checks)) if checks else None
    return Source(value, present, nullable=False, absent=None, is_float=is_float, table=table, wide=wide)


def _wide(side: Source) -> Expr:
    return side.wide.copy() if side.wide is not None else call("toInt128", side.value.copy())


def _of_integers(operator: str, left: Source, right: Source, /) -> Source:
    checks = presence([left, right])
    sides = _wide(left), _wide(right)
    if operator == "%":
        checks.append(exp.NEQ(this=sides[1].copy(), expression=number(0)))
        return _narrowed(call("moduloOrZero", *sides), checks)
    return _narrowed(_binary(_OPERATORS[operator], *sides), checks)


def _narrowed(wide: Expr, checks: list[Expr]) -> Source:
    """A 128-bit integer that is there within 64 bits."""
    lower = exp.GTE(this=wide.copy(), expression=number(_LEAST))
    upper = exp.LTE(this=wide.copy(), expression=number(_GREATEST))
    value = call("toInt64", wide.copy())
    return _computed(value, [*checks, lower, upper], is_float=False, table="Int64", wide=wide)


def _of_floats(operator: str, left: Source, right: Source, /) -> Source:
    checks = presence([left, right])
    sides = as_float(left), as_float(right)
    if operator in {"/", "%"}:
        checks.append(exp.NEQ(this=sides[1].copy(), expression=number(0)))
    pairs = zip(sides, (left, right), strict=True)
    finite = [call("isFinite", known.copy()) for known, side in pairs if _may_be_infinite(side)]
    value = _remainder(*sides) if operator == "%" else _binary(_OPERATORS[operator], *sides)
    overflowed = all_of([call("isInfinite", value.copy()), *finite])
    return _computed(value, [*checks, exp.Not(this=exp.Paren(this=overflowed))], is_float=True, table="Float64")


def _may_be_infinite(side: Source) -> bool:
    return side.is_float and not isinstance(side.value, exp.Placeholder)


def _remainder(left: Expr, right: Expr) -> Expr:
    """ClickHouse's `%` of floats is left - trunc(left / right) * right, which is NaN beside an infinite divisor.

    A function of one array element names each side once: named twice, 30 of them nested were 2 ** 30 long.
    """
    one, other = exp.column("one"), exp.column("other")
    is_small = all_of([call("isInfinite", other.copy()), call("isFinite", one.copy())])
    body = call("if", is_small, one.copy(), call("modulo", one.copy(), other.copy()))
    taken = exp.Lambda(this=body, expressions=[exp.to_identifier("one"), exp.to_identifier("other")])
    found = call("arrayMap", taken, call("array", left), call("array", right))
    return call("arrayElement", found, number(1))


def _binary(operator: type[exp.Binary], left: Expr, right: Expr, /) -> Expr:
    """Parentheses only where they are needed: a parser goes as deep as a text has them."""
    weak = (exp.Add, exp.Sub)
    is_product = operator in {exp.Mul, exp.Div}
    bare_left = exp.Paren(this=left) if is_product and isinstance(left, weak) else left
    bare_right = exp.Paren(this=right) if isinstance(right, exp.Binary) else right
    return operator(this=bare_left, expression=bare_right)


def rounded(side: Source, kind: Type) -> Source:
    """A computed float; where the result is a whole number of ns or bytes, rounded half to even."""
    if kind not in _WHOLE:
        return side
    whole = call("roundBankers", side.value.copy())
    fits = [
        exp.GTE(this=whole.copy(), expression=number(_LEAST)),
        exp.LTE(this=whole.copy(), expression=number(_GREATEST)),
    ]
    # `least(x, c)` of NaN is c; the other way round it were NaN, which toInt128 refuses.
    clamped = call("least", whole, exp.Literal.number(repr(_GREATEST_FLOAT)))
    wide = call("toInt128", call("greatest", clamped, exp.Neg(this=exp.Literal.number(repr(float(-_LEAST))))))
    checks = [*presence([side]), *fits]
    return _computed(call("toInt64", wide), checks, is_float=False, table="Int64", wide=wide)


def _magnitude(side: Source) -> Source:
    if side.is_float:
        value = call("abs", as_float(side))
        return _computed(value, presence([side]), is_float=True, table="Float64")
    if side.table.startswith("UInt"):
        return side
    wide = call("abs", _wide(side))
    checks = [*presence([side]), exp.NEQ(this=_wide(side), expression=number(_LEAST))]
    table = "Int128" if side.table == "Int128" else "Int64"
    value = wide.copy() if table == "Int128" else call("toInt64", wide.copy())
    return _computed(value, checks, is_float=False, table=table, wide=wide)


def _of_one_float(function: str, side: Source) -> Source:
    value = as_float(side)
    below = exp.LT if function == "sqrt" else exp.LTE
    outside = exp.Not(this=exp.Paren(this=below(this=value.copy(), expression=number(0))))
    return _computed(call(function, value), [*presence([side]), outside], is_float=True, table="Float64")


def _extreme(function: str, sides: Sequence[Source]) -> Source:
    """The least or greatest; ClickHouse's `least` passes over a NaN in one place and not in the other."""
    convert, table = _common(sides)
    values = [convert(side) for side in sides]
    if table != "Float64":
        value = call("least" if function == "min" else "greatest", *values)
        return _computed(value, presence(sides), is_float=False, table=table)
    if function == "min":
        values = [exp.Neg(this=exp.Paren(this=value)) for value in values]
    # Sorting puts NaN last, so the last of all is NaN, or else the greatest.
    last = call("arrayElement", call("arraySort", call("array", *values)), number(len(values)))
    value = exp.Neg(this=exp.Paren(this=last)) if function == "min" else last
    return _computed(value, presence(sides), is_float=True, table="Float64")


def _first_present(sides: Sequence[Source]) -> Source:
    convert, table = _common(sides)
    parts = [part for side in sides for part in (_is_present(side), convert(side))]
    present = None
    if all(side.present is not None for side in sides):
        present = exp.Paren(this=any_of(presence(sides)))
    value = call("multiIf", *parts, exp.null())
    is_float = any(side.is_float for side in sides)
    return Source(value, present, nullable=True, absent=None, is_float=is_float, table=table)


def _is_present(side: Source) -> Expr:
    return number(1) if side.present is None else side.present.copy()


def _common(sides: Sequence[Source]) -> tuple[Callable[[Source], Expr], str]:
    """How to read values of several ClickHouse types as one, and which; mixed integers would be a Variant, or wrap."""
    tables = {side.table for side in sides}
    if any(side.is_float for side in sides):
        return as_float, "Float64"
    if len(tables) == 1:
        return (lambda side: side.value), tables.pop()
    return _wide, "Int128"
