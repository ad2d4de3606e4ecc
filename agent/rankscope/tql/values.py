"""From written values to typed ones: every name is known, every literal is within 64 bits."""

from rankscope.tql import nodes
from rankscope.tql.arithmetic import computed, is_constant, negated
from rankscope.tql.errors import TqlTypeError
from rankscope.tql.formatting import format_value
from rankscope.tql.functions import FUNCTIONS, applied, refuse_unknown_function
from rankscope.tql.history import HISTORIES, looked_back
from rankscope.tql.literals import Literal, constant_alone, literal_of
from rankscope.tql.naming import Names, Operand, described


def operand(node: nodes.Value, names: Names) -> Operand:
    """The value that is written.

    Raises:
        TqlTypeError: A name, type, unit or range in it does not fit.
        TqlUnsupported: It names what no row can have.
    """
    if (literal := literal_of(node)) is not None:
        return _alone(literal, node, names=names)
    if (made := names.made(node)) is not None:
        return made
    match node:
        case nodes.FieldRef():
            return names.field(node)
        case nodes.Arithmetic():
            return computed(node, operand(node.left, names), operand(node.right, names), names=names)
        case nodes.Negate():
            return negated(node, operand(node.operand, names), names=names)
        case nodes.Call():
            return _called(node, names)
        case _:
            raise AssertionError(f"{type(node).__name__} is a literal")


def _called(node: nodes.Call, names: Names) -> Operand:
    known = HISTORIES if node.function in HISTORIES else FUNCTIONS
    if node.function not in known:
        raise refuse_unknown_function(node, names, known=(*FUNCTIONS, *HISTORIES))
    call = looked_back if node.function in HISTORIES else applied
    return call(node, [operand(argument, names) for argument in node.arguments], names=names)


def _alone(literal: Literal, node: nodes.Value, *, names: Names) -> Operand:
    alone = constant_alone(literal)
    return Operand(alone, described(format_value(node), alone.type, names.entity))


def field_or_value(node: nodes.Value, names: Names) -> Operand:
    """The value that is written, where it differs from row to row.

    Raises:
        TqlTypeError: It is the same in every row; or something in it does not fit.
    """
    found = operand(node, names)
    if is_constant(found.value):
        message = f"{format_value(node)} is no field"
        hint = "name what differs from row to row, as in tensor.l2"
        raise TqlTypeError("no_field", message, place=node.place, expected=("a field",), hint=hint)
    return found
