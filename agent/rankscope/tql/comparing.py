"""What two sides of a comparison must have in common, and what each is read as beside the other."""

from rankscope.tql import nodes
from rankscope.tql.errors import Place, TqlTypeError
from rankscope.tql.fields import NUMBERS, ORDERED, Type
from rankscope.tql.literals import Literal, constant, type_of
from rankscope.tql.naming import Operand, as_number, narrowed
from rankscope.tql.typed import AllOf, Condition, Constant, Exists, Key, Opposite, Output, Truth


def beside_literal(side: Operand, literal: Literal) -> tuple[Operand, Constant]:
    """A value and the literal beside it, which decides whether an attribute is read as text or number.

    Raises:
        TqlTypeError: The literal's type, unit or range does not fit.
    """
    given = type_of(literal)
    if side.type is Type.ATTRIBUTE:
        side = narrowed(side, Type.FLOAT if given in NUMBERS else Type.STRING)
    elif given in NUMBERS:
        side = as_number(side)
    return side, constant(literal, side.subject)


def agreed(left: Operand, right: Operand, *, place: Place) -> tuple[Operand, Operand]:
    """Two values that compare, attributes among them read as what they are compared with.

    Raises:
        TqlTypeError: They do not compare.
    """
    if left.type is Type.ATTRIBUTE and right.type is Type.ATTRIBUTE:
        message = f"{left.like.name} and {right.like.name} may be text or number: nothing says which to compare"
        hint = f"compare them as numbers: {left.like.name} + 0 == {right.like.name}"
        raise TqlTypeError("type_unknown", message, place=place, hint=hint)
    left, right = _read_beside(left, right), _read_beside(right, left)
    if not _comparable(left, right):
        kinds = f"{left.like.name} is of type {left.type}, {right.like.name} of type {right.type}"
        message, hint = f"{kinds}: they do not compare", "compare values of one type"
        raise TqlTypeError("type_mismatch", message, place=place, hint=hint)
    return left, right


def _read_beside(side: Operand, other: Operand) -> Operand:
    if side.type is Type.LIST and isinstance(side.value, Output):
        return as_number(side)
    return narrowed(side, Type.FLOAT if other.type in NUMBERS | {Type.LIST} else Type.STRING)


def _comparable(left: Operand, right: Operand) -> bool:
    if left.type in NUMBERS:
        return right.type in NUMBERS
    if left.type is Type.LIST or left.type is not right.type:
        return False
    same_length = left.type is not Type.ID or left.like.id_digits == right.like.id_digits
    return left.like.vocabulary is right.like.vocabulary and same_length


def refuse_unordered(operator: str, side: Operand, *, place: Place, instead: tuple[str, ...]) -> None:
    """Raise where an order is asked of what has none.

    Raises:
        TqlTypeError: The value's type has no less and more.
    """
    if operator not in {"==", "!="} and side.type not in ORDERED:
        message = f"{side.like.name} has no order: it is of type {side.type}"
        raise TqlTypeError("unordered", message, place=place, expected=instead, hint=f"ask with {' or '.join(instead)}")


def truth(side: Operand, operator: str, *, literal: Literal, place: Place) -> Condition:
    """A bool compared with `true` or `false`.

    Raises:
        TqlTypeError: It is compared with something else, or asked for an order.
    """
    if not isinstance(literal, nodes.Boolean):
        constant(literal, side.like)
    refuse_unordered(operator, side, place=place, instead=("==", "!="))
    asked = isinstance(literal, nodes.Boolean) and literal.value
    if asked == (operator == "=="):
        return Truth(side.value)
    return AllOf((Exists(side.value), Opposite(Truth(side.value))))


def is_text(side: Operand) -> bool:
    """Whether the value is a text, or an attribute that may be one."""
    return side.type is Type.STRING or (side.type is Type.ATTRIBUTE and isinstance(side.value, Key))
