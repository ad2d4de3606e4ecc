"""Conditions as SQL that is 0 or 1, never NULL: then NOT, AND and OR mean what the language says.

A comparison with a missing value or with NaN is 0, whatever the operator. ClickHouse agrees for
NaN except that `NaN != x` is 1 (measured on 26.9: <, <=, >, >=, = and IN are 0 against floats and
integers, nullable or not); for NULL every comparison is NULL; and a word that stands for "nothing"
is an ordinary value to it. Guards stand only where they can change the answer, so that `rank = 3`
stays a plain condition.
"""

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.checked import (
    AllOf,
    AnyOf,
    Between,
    Compare,
    Condition,
    Constant,
    Exists,
    FloatTest,
    Key,
    OneOf,
    Operand,
    Opposite,
)
from rankscope.tql.fields import Field, Type
from rankscope_query_api.tql_sql.expressions import Source, all_of, call, column, number, source
from rankscope_query_api.tql_sql.parameters import Parameters

_OPERATORS: dict[str, type[exp.Binary]] = {
    "==": exp.EQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}
_FLOAT_TESTS = {"isnan": "isNaN", "isinf": "isInfinite", "isfinite": "isFinite"}


def compile_condition(condition: Condition, parameters: Parameters) -> Expr:
    """The condition as an expression that is 0 or 1 for every row."""
    return _COMPILERS[type(condition)](condition, parameters)


def _compare(condition: Compare, parameters: Parameters) -> Expr:
    left, right = condition.left, condition.right
    if not isinstance(right, Constant):
        sides = [source(left, parameters), source(right, parameters)]
        compared = _binary(sides[0].value, sides[1].value, operator=condition.operator)
        return _guarded(compared, sides, unequal=condition.operator == "!=", certain=False)
    if isinstance(left, Field) and left.type is Type.ID:
        return _compare_id(left, condition.operator, digits=str(right.value), parameters=parameters)
    side = source(left, parameters)
    if condition.operator in {"==", "!="}:
        compared = _equals_one(left, (right,), parameters=parameters)
        compared = compared if condition.operator == "==" else exp.Not(this=exp.Paren(this=compared))
    else:
        compared = _binary(side.value, _bound(right, parameters), operator=condition.operator)
    certain = not _holds_of_absent(side, condition.operator, value=right.value)
    return _guarded(compared, [side], unequal=condition.operator == "!=", certain=certain)


def _binary(left: Expr, right: Expr, *, operator: str) -> Expr:
    return _OPERATORS[operator](this=left.copy(), expression=right.copy())


def _bound(value: Constant, parameters: Parameters) -> Expr:
    return parameters.bind(value.value, "String" if "String" in value.table else value.table)


def _holds_of_absent(side: Source, operator: str, *, value: float | str) -> bool:
    """Whether the comparison would be true of a row that has no value."""
    if side.absent is None:
        return side.present is not None and not side.nullable
    if isinstance(side.absent, str) or isinstance(value, str):
        return operator in {"!=", "<", "<="}
    results = {
        "==": side.absent == value,
        "!=": side.absent != value,
        "<": side.absent < value,
        "<=": side.absent <= value,
        ">": side.absent > value,
        ">=": side.absent >= value,
    }
    return results[operator]


def _guarded(compared: Expr, sides: list[Source], *, unequal: bool = False, certain: bool = True) -> Expr:
    """A comparison that is 0 where a side is missing or NaN.

    Args:
        compared: The comparison as SQL has it.
        sides: What it compares, constants left out.
        unequal: Whether it is `!=`, the only one that is 1 for NaN.
        certain: Whether it is known to be false of an absent value.
    """
    guards = [side.present for side in sides if side.present is not None and not side.nullable and not certain]
    if unequal:
        guards += [exp.Not(this=call("isNaN", side.value.copy())) for side in sides if side.is_float]
    whole = all_of([*(guard.copy() for guard in guards), compared])
    return call("ifNull", whole, number(0)) if any(side.nullable for side in sides) else whole


def _compare_id(field: Field, operator: str, *, digits: str, parameters: Parameters) -> Expr:
    same = _same_id(field, digits, parameters=parameters)
    side = source(field, parameters)
    if operator == "==":
        return _guarded(same, [side])
    return _guarded(exp.Not(this=exp.Paren(this=same)), [side], certain=False)


def _same_id(field: Field, digits: str, *, parameters: Parameters) -> Expr:
    """Whether an id is the one of these hexadecimal digits; ids are compared as the tables store them."""
    if len(field.column) == 2:
        halves = zip(field.column, (digits[:16], digits[16:]), strict=True)
        return all_of([_same_word(name, half, parameters=parameters) for name, half in halves])
    if field.table.startswith("FixedString"):
        return exp.EQ(this=column(field.column[0]), expression=call("unhex", parameters.bind(digits, "String")))
    return _same_word(field.column[0], digits, parameters=parameters)


def _same_word(name: str, digits: str, *, parameters: Parameters) -> Expr:
    return exp.EQ(this=column(name), expression=parameters.bind(int(digits, 16), "UInt64"))


def _one_of(condition: OneOf, parameters: Parameters) -> Expr:
    operand = condition.operand
    side = source(operand, parameters)
    if isinstance(operand, Field) and operand.type is Type.ID:
        same = [_same_id(operand, str(choice.value), parameters=parameters) for choice in condition.choices]
        return _guarded(exp.Paren(this=exp.or_(*same)), [side])
    certain = not any(_holds_of_absent(side, "==", value=choice.value) for choice in condition.choices)
    return _guarded(_equals_one(operand, condition.choices, parameters=parameters), [side], certain=certain)


def _equals_one(operand: Operand, choices: tuple[Constant, ...], *, parameters: Parameters) -> Expr:
    """Whether the operand equals one of the constants, where it is there.

    IN, into which ClickHouse also turns three or more equalities, compares bits and casts to the
    left side's type: -0.0 is not in (0.0, 1.0), and 1.5 is looked up in an integer column. So
    floats are brought to one zero, and a fraction is never looked up among integers.
    """
    side = source(operand, parameters)
    value, table = side.value.copy(), side.table
    if side.is_float:
        value, table = exp.Paren(this=exp.Add(this=value, expression=number(0))), "Float64"
    possible = [found for choice in choices if (found := _equal_value(operand, choice.value)) is not None]
    bound = [parameters.bind(found, table) for found in possible]
    if len(bound) > 1:
        return exp.In(this=value, expressions=bound)
    return exp.EQ(this=value, expression=bound[0]) if bound else number(0)


def _equal_value(operand: Operand, value: float | str) -> float | str | None:
    """The constant as a value of the operand's own type; None: none of them equals it."""
    if isinstance(value, str) or isinstance(operand, Key) or operand.type is Type.FLOAT:
        return value if isinstance(value, str) else value + 0.0
    whole = value == int(value) and operand.low <= value <= operand.high
    return int(value) if whole else None


def _between(condition: Between, parameters: Parameters) -> Expr:
    side = source(condition.operand, parameters)
    bounds = [
        _binary(side.value, _bound(condition.low, parameters), operator=">="),
        _binary(side.value, _bound(condition.high, parameters), operator="<="),
    ]
    certain = not _holds_of_absent(side, ">=", value=condition.low.value)
    return _guarded(all_of(bounds), [side], certain=certain)


def _exists(condition: Exists, parameters: Parameters) -> Expr:
    present = source(condition.operand, parameters).present
    return number(1) if present is None else present.copy()


def _float_test(condition: FloatTest, parameters: Parameters) -> Expr:
    side = source(condition.operand, parameters)
    return _guarded(call(_FLOAT_TESTS[condition.question], side.value.copy()), [side], certain=False)


def _opposite(condition: Opposite, parameters: Parameters) -> Expr:
    return exp.Not(this=exp.Paren(this=compile_condition(condition.operand, parameters)))


def _all_of(condition: AllOf, parameters: Parameters) -> Expr:
    return all_of([compile_condition(operand, parameters) for operand in condition.operands])


def _any_of(condition: AnyOf, parameters: Parameters) -> Expr:
    return exp.Paren(this=exp.or_(*(compile_condition(operand, parameters) for operand in condition.operands)))


_COMPILERS: dict[type, Callable[[Any, Parameters], Expr]] = {
    Compare: _compare,
    OneOf: _one_of,
    Between: _between,
    Exists: _exists,
    FloatTest: _float_test,
    Opposite: _opposite,
    AllOf: _all_of,
    AnyOf: _any_of,
}
