"""From predicates to conditions: both sides of every comparison exist, agree in type, and are in range."""

from rankscope.tql import nodes, patterns
from rankscope.tql.arithmetic import is_constant
from rankscope.tql.comparing import agreed, beside_literal, is_text, refuse_unordered, truth
from rankscope.tql.errors import Place, TqlTypeError
from rankscope.tql.fields import Type
from rankscope.tql.formatting import format_value
from rankscope.tql.literals import Literal, constant_alone, literal_of, with_article
from rankscope.tql.naming import Names, Operand, narrowed
from rankscope.tql.typed import (
    AllOf,
    AnyOf,
    Between,
    Compare,
    Condition,
    Constant,
    Contains,
    Exists,
    FloatTest,
    Matches,
    OneOf,
    Opposite,
    Value,
)
from rankscope.tql.values import field_or_value, operand
from rankscope.tql.words import Comparator, Question

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARATORS: dict[str, Comparator] = {"==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_QUESTIONS: dict[str, Question] = {"isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite"}


def condition(node: nodes.Predicate, names: Names) -> Condition:
    """What a predicate states of a row.

    Raises:
        TqlTypeError: A name, type, unit or value does not fit.
        TqlUnsupported: It names what no row can have.
    """
    match node:
        case nodes.And():
            return AllOf(tuple(condition(part, names) for part in node.operands))
        case nodes.Or():
            return AnyOf(tuple(condition(part, names) for part in node.operands))
        case nodes.Not():
            return Opposite(condition(node.operand, names))
        case nodes.Comparison():
            return _comparison(node, names)
        case nodes.Membership():
            return _membership(node, names)
        case _:
            return _asked(node, names)


def _asked(node: nodes.Match | nodes.Contains | nodes.Test, names: Names) -> Condition:
    if isinstance(node, nodes.Match):
        return _match(node, names)
    return _contains(node, names) if isinstance(node, nodes.Contains) else _test(node, names)


def _comparison(node: nodes.Comparison, names: Names) -> Condition:
    left, right = literal_of(node.left), literal_of(node.right)
    if left is not None and right is not None:
        raise _without_field(node)
    if left is not None:
        mirrored = nodes.Comparison(_MIRRORED[node.operator], node.right, node.left, place=node.place)
        return _comparison(mirrored, names)
    side = operand(node.left, names)
    if side.type is Type.BOOL and right is not None:
        return truth(side, node.operator, literal=right, place=node.place)
    side, other = _beside(side, node.right, names=names, place=node.place)
    if is_constant(side.value) and is_constant(other):
        raise _without_field(node)
    refuse_unordered(node.operator, side, place=node.place, instead=("==", "!=", "in [..]"))
    return Compare(_COMPARATORS[node.operator], side.value, other)


def _beside(side: Operand, node: nodes.Value, *, names: Names, place: Place) -> tuple[Operand, Value]:
    """A value and what stands beside it, each read as the other asks."""
    if (literal := literal_of(node)) is not None:
        return beside_literal(side, literal)
    side, other = agreed(side, operand(node, names), place=place)
    return side, other.value


def _without_field(node: nodes.Comparison) -> TqlTypeError:
    message = f"{format_value(node.left)} {node.operator} {format_value(node.right)} compares no field"
    hint = "name a field on one side, as in rank == 1"
    return TqlTypeError("no_field", message, place=node.place, expected=("a field on one side",), hint=hint)


def _membership(node: nodes.Membership, names: Names) -> Condition:
    side = field_or_value(node.value, names)
    if isinstance(node.among, nodes.Choices):
        return _among_choices(side, node.among)
    return _between(side, node.among, names=names, place=node.place)


def _among_choices(side: Operand, among: nodes.Choices) -> Condition:
    literals = [_listed(item, "a list holds only literals") for item in among.items]
    side, first = beside_literal(side, literals[0])
    return OneOf(side.value, (first, *(beside_literal(side, literal)[1] for literal in literals[1:])))


def _listed(item: nodes.Value, rule: str) -> Literal:
    if (literal := literal_of(item)) is not None:
        return literal
    message = f"{rule}, and {format_value(item)} is none"
    hint = "write a number or a text; compare with a field by itself, as in rank == local_rank"
    raise TqlTypeError("no_literal", message, place=item.place, expected=("a literal",), hint=hint)


def _between(side: Operand, among: nodes.Interval, *, names: Names, place: Place) -> Condition:
    side, low = _beside(side, among.low, names=names, place=place)
    side, high = _beside(side, among.high, names=names, place=place)
    refuse_unordered("in", side, place=place, instead=("in [..]",))
    if isinstance(low, Constant) and isinstance(high, Constant) and _is_empty(low, high):
        ends = f"{format_value(among.low)}..{format_value(among.high)}"
        message, hint = f"nothing lies in {ends}: the first end is the greater", "write the lesser end first"
        raise TqlTypeError("empty_interval", message, place=among.place, hint=hint)
    return Between(side.value, low, high)


def _is_empty(low: Constant, high: Constant) -> bool:
    if isinstance(low.value, str) or isinstance(high.value, str):
        return str(low.value) > str(high.value)
    return low.value > high.value


def _match(node: nodes.Match, names: Names) -> Condition:
    side = field_or_value(node.value, names)
    if not is_text(side):
        message = f"{side.like.name} is {with_article(side.type)}, and a pattern is matched with text"
        hint = "compare it with == or in"
        raise TqlTypeError("type_mismatch", message, place=node.place, expected=("a text",), hint=hint)
    pattern = patterns.rewritten(node.pattern.value, place=node.pattern.place)
    return Matches(narrowed(side, Type.STRING).value, pattern, node.operator == "!~")


def _contains(node: nodes.Contains, names: Names) -> Condition:
    side = field_or_value(node.value, names)
    if side.type is Type.LIST:
        return _holds(node, side)
    if not is_text(side):
        message = f"{side.like.name} is {with_article(side.type)}, and only texts and lists contain something"
        hint = "compare it with == or in"
        raise TqlTypeError("type_mismatch", message, place=node.place, expected=("a text", "a list"), hint=hint)
    part = narrowed(operand(node.part, names), Type.STRING)
    if part.type is not Type.STRING:
        message, hint = f"a text contains texts, {part.like.name} is {with_article(part.type)}", "write it in quotes"
        raise TqlTypeError("type_mismatch", message, place=node.part.place, expected=("a text",), hint=hint)
    return Contains(narrowed(side, Type.STRING).value, part.value)


def _holds(node: nodes.Contains, side: Operand) -> Condition:
    """Whether a list has an item; the item is a literal."""
    item = constant_alone(_listed(node.part, "what a list contains is asked by a literal"))
    wanted = Type.STRING if side.like.table == "Array(String)" else Type.INTEGER
    if item.type is not wanted:
        message = f"{side.like.name} is a list of {wanted} values, {format_value(node.part)} is none"
        expected, hint = (with_article(wanted),), f"ask for {with_article(wanted)} in it"
        raise TqlTypeError("type_mismatch", message, place=node.part.place, expected=expected, hint=hint)
    return Contains(side.value, item)


def _test(node: nodes.Test, names: Names) -> Condition:
    side = field_or_value(node.value, names)
    if node.question == "exists":
        return Exists(side.value)
    if node.question == "missing":
        return Opposite(Exists(side.value))
    side = narrowed(side, Type.FLOAT)
    if side.type is not Type.FLOAT:
        message = f"{node.question}() asks about a float, {side.like.name} is of type {side.type}"
        hint = "every such value is finite: leave the question out"
        raise TqlTypeError("type_mismatch", message, place=node.place, hint=hint)
    return FloatTest(_QUESTIONS[node.question], side.value)
