"""From predicates to conditions: both sides of every comparison exist, agree in type, and are in range."""

import dataclasses

from rankscope.tql import nodes
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
from rankscope.tql.errors import TqlTypeError, TqlUnsupported
from rankscope.tql.fields import NUMBERS, ORDERED, Type
from rankscope.tql.formatting import field_text, format_value
from rankscope.tql.literals import Literal, constant, literal_of, name_of, text_of, type_of
from rankscope.tql.resolve import Resolver

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def check_predicate(node: nodes.Predicate, resolver: Resolver) -> Condition:
    """The condition that a predicate states of the resolver's entity.

    Raises:
        TqlTypeError: A name, type, unit or value does not fit.
        TqlUnsupported: It uses what this version does not answer.
    """
    match node:
        case nodes.And():
            return AllOf(tuple(check_predicate(operand, resolver) for operand in node.operands))
        case nodes.Or():
            return AnyOf(tuple(check_predicate(operand, resolver) for operand in node.operands))
        case nodes.Not():
            return Opposite(check_predicate(node.operand, resolver))
        case nodes.Comparison():
            return _comparison(node, resolver)
        case nodes.Membership():
            return _membership(node, resolver)
        case _:
            return _question(node, resolver)


def _question(node: nodes.Test | nodes.Match | nodes.Contains, resolver: Resolver) -> Condition:
    if isinstance(node, nodes.Match):
        message = f"matching a pattern with {node.operator} is not answered yet"
        raise TqlUnsupported("unsupported", message, place=node.place, hint="compare with == or in")
    if isinstance(node, nodes.Contains):
        raise TqlUnsupported("unsupported", "contains is not answered yet", place=node.place)
    field = _field(node.value)
    if node.question in {"exists", "missing"}:
        present = Exists(resolver.operand(field))
        return present if node.question == "exists" else Opposite(present)
    operand = resolver.operand(field, key_type=Type.FLOAT)
    if operand.type is not Type.FLOAT:
        message = f"{node.question}() asks about a float, {name_of(operand)} is of type {operand.type}"
        hint = "every such value is finite: leave the question out"
        raise TqlTypeError("type_mismatch", message, place=node.place, hint=hint)
    return FloatTest(node.question, operand)


def _field(value: nodes.Value) -> nodes.FieldRef:
    """The value if it is a field; what stands elsewhere in its place is said by name."""
    if isinstance(value, nodes.FieldRef):
        return value
    if isinstance(value, nodes.Arithmetic):
        raise TqlUnsupported("unsupported", f"arithmetic with {value.operator} is not answered yet", place=value.place)
    if isinstance(value, nodes.Call):
        message = f"the function {value.function}() is not answered yet"
        raise TqlUnsupported("unsupported", message, place=value.place)
    message = f"{format_value(value)} is no field"
    raise TqlTypeError("no_field", message, place=value.place, expected=("a field",))


def _comparison(node: nodes.Comparison, resolver: Resolver) -> Compare:
    left, right = literal_of(node.left), literal_of(node.right)
    if left is not None and right is not None:
        message = f"{format_value(node.left)} {node.operator} {format_value(node.right)} compares no field"
        raise TqlTypeError("no_field", message, place=node.place, expected=("a field on one side",))
    if left is not None:
        mirrored = nodes.Comparison(_MIRRORED[node.operator], node.right, node.left, place=node.place)
        return _comparison(mirrored, resolver)
    if right is None:
        return _of_two_fields(node, resolver)
    operand, value = _with_literal(_field(node.left), right, resolver=resolver)
    _refuse_unordered(operand, node)
    return Compare(node.operator, operand, value)


def _with_literal(field: nodes.FieldRef, literal: Literal, *, resolver: Resolver) -> tuple[Operand, Constant]:
    """A field and the constant beside it; the literal decides whether an attribute is read as text or number."""
    given = type_of(literal)
    operand = resolver.operand(field, key_type=Type.FLOAT if given in NUMBERS else Type.STRING)
    return operand, constant(literal, operand)


def _of_two_fields(node: nodes.Comparison, resolver: Resolver) -> Compare:
    left, right = resolver.operand(_field(node.left)), resolver.operand(_field(node.right))
    for side, other in ((left, right), (right, left)):
        if side.type is Type.ATTRIBUTE and other.type is Type.ATTRIBUTE:
            message = f"{name_of(left)} and {name_of(right)} may be text or number: nothing says which to compare"
            hint = "compare an attribute with a literal or a field"
            raise TqlTypeError("type_unknown", message, place=node.place, hint=hint)
    left, right = _as_type_of(left, right), _as_type_of(right, left)
    if not _comparable(left, right):
        message = f"{name_of(left)} is of type {left.type}, {name_of(right)} of type {right.type}: they do not compare"
        raise TqlTypeError("type_mismatch", message, place=node.place, hint="compare fields of one type")
    _refuse_unordered(left, node)
    return Compare(node.operator, left, right)


def _as_type_of(side: Operand, other: Operand) -> Operand:
    """An attribute read as what it is compared with."""
    if not isinstance(side, Key) or side.type is not Type.ATTRIBUTE:
        return side
    return dataclasses.replace(side, type=Type.FLOAT if other.type in NUMBERS else Type.STRING)


def _comparable(left: Operand, right: Operand) -> bool:
    if left.type in NUMBERS:
        return right.type in NUMBERS
    if isinstance(left, Key) or isinstance(right, Key):
        return left.type is right.type
    same_length = left.type is not Type.ID or left.id_digits == right.id_digits
    return left.type is right.type and left.vocabulary is right.vocabulary and same_length


def _refuse_unordered(operand: Operand, node: nodes.Comparison) -> None:
    if node.operator not in {"==", "!="} and operand.type not in ORDERED:
        message = f"{name_of(operand)} has no order: it is of type {operand.type}"
        raise TqlTypeError("unordered", message, place=node.place, expected=("==", "!=", "in [..]"))


def _membership(node: nodes.Membership, resolver: Resolver) -> Condition:
    field = _field(node.value)
    if isinstance(node.among, nodes.Choices):
        return _among_choices(field, node.among, resolver=resolver)
    low, high = (_required(value) for value in (node.among.low, node.among.high))
    operand, least = _with_literal(field, low, resolver=resolver)
    if operand.type not in ORDERED:
        message = f"{field_text(field)} has no order: it is of type {operand.type}"
        raise TqlTypeError("unordered", message, place=node.place, expected=("in [..]",))
    greatest = constant(high, operand)
    if _is_empty(least, greatest):
        message = f"nothing lies in {text_of(low)}..{text_of(high)}: the first end is the greater"
        hint = "write the lesser end first"
        raise TqlTypeError("empty_interval", message, place=node.among.place, hint=hint)
    return Between(operand, least, greatest)


def _is_empty(low: Constant, high: Constant) -> bool:
    if isinstance(low.value, str) or isinstance(high.value, str):
        return str(low.value) > str(high.value)
    return low.value > high.value


def _required(value: nodes.Value) -> Literal:
    literal = literal_of(value)
    if literal is None:
        _field(value)
        raise TqlUnsupported(
            "unsupported", "a field inside a list or an interval is not answered yet", place=value.place
        )
    return literal


def _among_choices(field: nodes.FieldRef, among: nodes.Choices, *, resolver: Resolver) -> Condition:
    literals = [_required(item) for item in among.items]
    operand, first = _with_literal(field, literals[0], resolver=resolver)
    return OneOf(operand, (first, *(constant(literal, operand) for literal in literals[1:])))
