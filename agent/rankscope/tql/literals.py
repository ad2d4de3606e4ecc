"""From a literal and the field beside it to a constant: the type fits, the unit is right, the value is in range."""

import datetime
import decimal
import math
import re
import struct

from rankscope.tql import nodes
from rankscope.tql.checked import Constant, Key, Operand
from rankscope.tql.errors import TqlTypeError, TqlUnsupported
from rankscope.tql.fields import NUMBERS, Type
from rankscope.tql.formatting import format_value
from rankscope.tql.words import DURATIONS, SIZES

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FRACTION = re.compile(r"(.*:\d\d)\.(\d{1,9})(.*)")
_SMALLEST_FLOAT32 = 2.0**-149
Literal = nodes.Number | nodes.Negate | nodes.Text | nodes.Boolean
"""What a constant is written as."""


def name_of(operand: Operand) -> str:
    """The operand as a query writes it."""
    if isinstance(operand, Key):
        return format_value(nodes.FieldRef(operand.scope, operand.key))
    return operand.name


def type_of(literal: Literal) -> Type:
    """The type a literal has by itself."""
    match literal:
        case nodes.Text():
            return Type.STRING
        case nodes.Boolean():
            return Type.BOOL
        case nodes.Negate():
            return type_of(_number_within(literal))
        case nodes.Number():
            if literal.unit:
                return Type.DURATION if literal.unit in DURATIONS else Type.SIZE
            return Type.INTEGER if literal.text.isdigit() else Type.FLOAT


def constant(literal: Literal, operand: Operand) -> Constant:
    """The literal as a value of the operand's type; among attributes, which the SDK keeps as text, true is "true".

    Raises:
        TqlTypeError: Its type, unit or range does not fit the operand.
    """
    wanted, given = operand.type, type_of(literal)
    if isinstance(literal, nodes.Boolean) and isinstance(operand, Key) and wanted is Type.STRING:
        return Constant("true" if literal.value else "false", "String")
    if isinstance(literal, nodes.Text) and wanted in _FROM_TEXT:
        return _FROM_TEXT[wanted](literal, operand)
    if isinstance(literal, nodes.Text | nodes.Boolean) or not _fits(given, wanted):
        raise _mismatch(literal, operand)
    if wanted is Type.FLOAT:
        return _float(literal, operand)
    if given is Type.FLOAT:
        return Constant(_as_float(literal), "Float64")
    return _integer(literal, operand)


def _fits(given: Type, wanted: Type) -> bool:
    return given is wanted or (given in NUMBERS and wanted in NUMBERS)


def _mismatch(literal: Literal, operand: Operand) -> TqlTypeError:
    given, wanted = type_of(literal), operand.type
    message = f"{name_of(operand)} is {_a(wanted)}, {format_value(literal)} is {_a(given)}: they do not compare"
    hints = {
        Type.DURATION: "write a unit, as in 5ms",
        Type.TIME: 'write a time as "2026-11-29T12:00:00Z"',
        Type.WORD: f"write one of its words, as in {_example_word(operand)}",
        Type.STRING: f'write it in quotes: "{format_value(literal)}"',
        Type.ID: "write its hexadecimal digits in quotes",
    }
    hint = hints.get(wanted, "leave out the unit" if given in {Type.DURATION, Type.SIZE} else "")
    return TqlTypeError("type_mismatch", message, place=literal.place, expected=(_a(wanted),), hint=hint)


def _a(kind: Type) -> str:
    return f"an {kind}" if kind[0] in "aei" else f"a {kind}"


def _example_word(operand: Operand) -> str:
    if isinstance(operand, Key) or operand.vocabulary is None:
        return "a string"
    return f'"{next(iter(operand.vocabulary)).value}"'


def _number_within(literal: nodes.Number | nodes.Negate) -> nodes.Number:
    inner: nodes.Value = literal
    while isinstance(inner, nodes.Negate):
        inner = inner.operand
    if not isinstance(inner, nodes.Number):
        raise TqlUnsupported("unsupported", "arithmetic is not answered yet", place=literal.place)
    return inner


def _exact(literal: nodes.Number | nodes.Negate) -> decimal.Decimal:
    """The number as written, in base units."""
    number, negative, inner = _number_within(literal), False, literal
    while isinstance(inner, nodes.Negate):
        negative, inner = not negative, inner.operand
    scale = {**DURATIONS, **SIZES}.get(number.unit, 1)
    with decimal.localcontext(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        value = decimal.Decimal(number.text) * scale
    return -value if negative else value


def _as_float(literal: nodes.Number | nodes.Negate) -> float:
    value = float(_exact(literal))
    if math.isinf(value):
        message = f"{format_value(literal)} is beyond what a 64-bit float holds"
        raise TqlTypeError("out_of_range", message, place=literal.place)
    return value


def _float(literal: nodes.Number | nodes.Negate, operand: Operand) -> Constant:
    """A float of the column's width: 0.1 then equals a stored 0.1, which double precision would deny."""
    value = _as_float(literal)
    if isinstance(operand, Key) or operand.table != "Float32":
        return Constant(value, "Float64")
    try:
        narrow: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        narrow = math.inf
    if math.isinf(narrow) or 0.0 < abs(value) < _SMALLEST_FLOAT32:
        message = f"{format_value(literal)} is out of the range of {name_of(operand)}, a 32-bit float"
        limits = ("0, or a magnitude of 1.4e-45 to 3.4e38",)
        raise TqlTypeError("out_of_range", message, place=literal.place, expected=limits)
    return Constant(narrow, "Float32")


def _integer(literal: nodes.Number | nodes.Negate, operand: Operand) -> Constant:
    assert not isinstance(operand, Key), "the values of maps are texts and floats"
    exact = _exact(literal)
    low, high = operand.low, operand.high
    assert low is not None and high is not None, "every integer column has a range"
    if not low <= exact <= high:
        message = f"{format_value(literal)} is out of the range of {operand.name}"
        hint = f"write missing({operand.name}) for rows without it" if exact == operand.absent else ""
        raise TqlTypeError("out_of_range", message, place=literal.place, expected=(f"{low} to {high}",), hint=hint)
    if exact != exact.to_integral_value():
        message = f"{format_value(literal)} is no whole number of {'ns' if operand.type is Type.DURATION else 'bytes'}"
        raise TqlTypeError("not_whole", message, place=literal.place)
    return Constant(int(exact), operand.table)


def _string(literal: nodes.Text, operand: Operand) -> Constant:
    if literal.value == "" and not isinstance(operand, Key):
        name = name_of(operand)
        message = f'{name} == "" is never true: an empty {name} counts as missing'
        raise TqlTypeError("empty_string", message, place=literal.place, hint=f"write missing({name})")
    return Constant(literal.value, "String")


def _word(literal: nodes.Text, operand: Operand) -> Constant:
    assert not isinstance(operand, Key) and operand.vocabulary is not None, "only fields with a vocabulary are words"
    words = {word.value: word.code for word in operand.vocabulary}
    if literal.value not in words:
        message = f"{format_value(literal)} is no word of {operand.name}"
        raise TqlTypeError("unknown_word", message, place=literal.place, expected=tuple(words))
    return Constant(words[literal.value], "UInt8")


def _id(literal: nodes.Text, operand: Operand) -> Constant:
    assert not isinstance(operand, Key), "the values of maps are texts and floats"
    wide = len(operand.column) == 2 or operand.table.startswith("FixedString")
    digits = literal.value.lower().replace("-", "") if wide else literal.value.lower()
    length = 32 if wide else 16
    if not re.fullmatch(f"[0-9a-f]{{{length}}}", digits):
        message = f"{format_value(literal)} is no id as {operand.name} has it"
        raise TqlTypeError("bad_id", message, place=literal.place, expected=(f"{length} hexadecimal digits",))
    return Constant(digits, "String")


def _time(literal: nodes.Text, operand: Operand) -> Constant:
    found = _FRACTION.fullmatch(literal.value)
    whole, fraction = (found[1] + found[3], found[2]) if found else (literal.value, "")
    try:
        moment = datetime.datetime.fromisoformat(whole)
    except ValueError as error:
        message = f"{format_value(literal)} is no time"
        shape = '"2026-11-29T12:00:00Z"'
        raise TqlTypeError("bad_time", message, place=literal.place, expected=(shape,)) from error
    aware = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    seconds = (aware - _EPOCH) // datetime.timedelta(seconds=1)
    value = seconds * 1_000_000_000 + int(fraction.ljust(9, "0") or 0)
    assert not isinstance(operand, Key) and operand.low is not None and operand.high is not None, "times have a range"
    if not operand.low <= value <= operand.high:
        message = f"{format_value(literal)} is out of the range of {operand.name}"
        raise TqlTypeError("out_of_range", message, place=literal.place, expected=("the years 2000 to 2199",))
    return Constant(value, "Int64")


_FROM_TEXT = {Type.STRING: _string, Type.WORD: _word, Type.ID: _id, Type.TIME: _time}
