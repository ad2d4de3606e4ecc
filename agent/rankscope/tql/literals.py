"""From a literal and the field beside it to a constant: the type fits, the unit is right, the value is in range."""

import datetime as dt
import decimal
import difflib
import functools
import math
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rankscope.tql import nodes
from rankscope.tql.errors import Place, TqlTypeError
from rankscope.tql.fields import NUMBERS, Field, Type, Vocabulary
from rankscope.tql.formatting import field_text, format_value
from rankscope.tql.typed import Constant, Key
from rankscope.tql.words import DURATIONS, SIZES

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FRACTION = re.compile(r"(.*:\d\d)\.(\d{1,9})((?:\D.*)?)")
_SHAPE = re.compile(r"\s*\[\s*(?:[0-9]{1,20}(?:\s*,\s*[0-9]{1,20})*)?\s*\]\s*")
_SIZE = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_SCALE = {"": 1, **DURATIONS, **SIZES}
_EXACT = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


@dataclass(frozen=True, slots=True)
class Signed:
    """A number with the minus signs before it."""

    number: nodes.Number
    negative: bool
    place: Place

    def __str__(self) -> str:
        """As it would be written."""
        return f"{'-' if self.negative else ''}{format_value(self.number)}"

    @property
    def exact(self) -> decimal.Decimal:
        """Its value in base units: ns, bytes, or as it stands.

        Raises:
            TqlTypeError: Its exponent is beyond all numbers.
        """
        try:
            value = _EXACT.multiply(decimal.Decimal(self.number.text), decimal.Decimal(_SCALE[self.number.unit]))
        except ArithmeticError as error:
            message, hint = "the exponent of this number is beyond all others", "write a value up to 1.79e308"
            raise TqlTypeError("out_of_range", message, place=self.place, hint=hint) from error
        return -value if self.negative else value


Literal = Signed | nodes.Text | nodes.Boolean
"""What stands for itself."""

Subject = Field | Key
"""What a literal stands beside: a field, or an expression described as one, or a key."""

_UINT32_MAX = 2**32 - 1


def literal_of(value: nodes.Value) -> Literal | None:
    """The value as a literal; None if it is something to be computed or looked up."""
    inner, negative = value, False
    while isinstance(inner, nodes.Negate):
        inner, negative = inner.operand, not negative
    if isinstance(inner, nodes.Number):
        return Signed(inner, negative, value.place)
    return value if isinstance(value, nodes.Text | nodes.Boolean) else None


def text_of(literal: Literal) -> str:
    """The literal as it would be written."""
    return str(literal) if isinstance(literal, Signed) else format_value(literal)


def name_of(operand: Subject) -> str:
    """The operand as a query writes it."""
    if isinstance(operand, Key):
        return field_text(nodes.FieldRef(operand.scope, operand.key))
    return operand.name


def type_of(literal: Literal) -> Type:
    """The type a literal has by itself."""
    if isinstance(literal, nodes.Text):
        return Type.STRING
    if isinstance(literal, nodes.Boolean):
        return Type.BOOL
    if literal.number.unit:
        return Type.DURATION if literal.number.unit in DURATIONS else Type.SIZE
    return Type.INTEGER if literal.number.text.isdigit() else Type.FLOAT


def constant(literal: Literal, operand: Subject) -> Constant:
    """The literal as a value of the operand's type.

    Raises:
        TqlTypeError: Its type, unit or range does not fit the operand.
    """
    if isinstance(operand, Key):
        return _of_key(literal, operand)
    if isinstance(literal, nodes.Text) and operand.type in _FROM_TEXT:
        return _FROM_TEXT[operand.type](literal, operand)
    if not isinstance(literal, Signed) or not _fits(type_of(literal), operand.type):
        raise _mismatch(literal, operand)
    if operand.type is Type.FLOAT:
        return _float(literal, operand)
    if type_of(literal) is Type.FLOAT:
        return Constant(_as_float(literal), Type.FLOAT, "Float64")
    return _integer(literal, operand)


def constant_alone(literal: Literal) -> Constant:
    """The literal as what it is by itself: a part of arithmetic.

    Raises:
        TqlTypeError: It is beyond 64 bits, or no whole number of ns or bytes.
    """
    if isinstance(literal, nodes.Text):
        return Constant(literal.value, Type.STRING, "String")
    if isinstance(literal, nodes.Boolean):
        return Constant(literal.value, Type.BOOL, "UInt8")
    kind = type_of(literal)
    if kind is Type.FLOAT:
        return Constant(_as_float(literal), kind, "Float64")
    return Constant(_whole(literal, low=-(2**63), high=2**63 - 1), kind, "Int64")


def _whole(literal: Signed, *, low: int, high: int) -> int:
    exact, unit = literal.exact, "bytes" if literal.number.unit in SIZES else "ns"
    if not low <= exact <= high:
        message = f"{literal} is beyond what an integer of 64 bits holds"
        hint = f"write a value within {low} to {high}"
        raise TqlTypeError("out_of_range", message, place=literal.place, expected=(f"{low} to {high}",), hint=hint)
    if exact != exact.to_integral_value():
        message = f"{literal} is no whole number of {unit}"
        raise TqlTypeError("not_whole", message, place=literal.place, hint=f"write a whole number of {unit}")
    return int(exact)


def _fits(given: Type, wanted: Type) -> bool:
    return given is wanted or (given in NUMBERS and wanted in NUMBERS)


def _of_key(literal: Literal, key: Key) -> Constant:
    """A text or a number; the SDK keeps a true label as the text "true"."""
    if isinstance(literal, nodes.Text) and key.type is Type.STRING:
        return Constant(literal.value, Type.STRING, "String")
    if isinstance(literal, nodes.Boolean) and key.type is Type.STRING:
        return Constant("true" if literal.value else "false", Type.STRING, "String")
    if not isinstance(literal, Signed) or not _fits(type_of(literal), key.type):
        raise _mismatch(literal, key)
    if key.type is Type.FLOAT or type_of(literal) is Type.FLOAT:
        return Constant(_as_float(literal), Type.FLOAT, "Float64")
    if not 0 <= literal.exact <= _UINT32_MAX:
        raise _out_of_range(literal, key, allowed=f"0 to {_UINT32_MAX}")
    return Constant(int(literal.exact), Type.INTEGER, "UInt32")


def _mismatch(literal: Literal, operand: Subject) -> TqlTypeError:
    given, wanted = type_of(literal), operand.type
    sides = f"{name_of(operand)} is {with_article(wanted)}, {text_of(literal)} is {with_article(given)}"
    message = f"{sides}: they do not compare"
    expected = "contains" if wanted is Type.LIST else with_article(wanted)
    hint = _instead(literal, operand)
    return TqlTypeError("type_mismatch", message, place=literal.place, expected=(expected,), hint=hint)


def _instead(literal: Literal, operand: Subject) -> str:
    if isinstance(operand, Field) and operand.type is Type.WORD:
        return f'write one of its words, as in "{next(iter(operand.vocabulary)).value}"'
    hints = {
        Type.DURATION: "write a unit, as in 5ms",
        Type.TIME: 'write a time as "2026-11-29T12:00:00Z"',
        Type.STRING: f'write it in quotes: "{text_of(literal)}"',
        Type.ID: "write its hexadecimal digits in quotes",
        Type.SIZE: "write a size, as in 4MiB",
        Type.BOOL: "write true or false",
        Type.LIST: f"ask whether it contains something: {name_of(operand)} contains {text_of(literal)}",
    }
    if type_of(literal) in {Type.DURATION, Type.SIZE}:
        return hints.get(operand.type, "leave out the unit")
    if isinstance(literal, nodes.Text) and operand.type in NUMBERS and _NUMBER.fullmatch(literal.value):
        return f"leave out the quotes: {literal.value}"
    return hints.get(operand.type, "write a number, as in 2")


def with_article(kind: Type) -> str:
    """A type as a sentence names it."""
    return f"an {kind}" if kind[0] in "aei" else f"a {kind}"


def _out_of_range(literal: Literal, operand: Subject, *, allowed: str, hint: str = "") -> TqlTypeError:
    message = f"{text_of(literal)} is out of the range of {name_of(operand)}"
    return TqlTypeError(
        "out_of_range",
        message,
        place=literal.place,
        expected=(allowed,),
        hint=hint or f"write a value within {allowed}",
    )


def _as_float(literal: Signed) -> float:
    value = float(literal.exact)
    if math.isinf(value):
        message = f"{literal} is beyond what a 64-bit float holds"
        raise TqlTypeError("out_of_range", message, place=literal.place, hint="write a value up to 1.79e308")
    return value


def _float(literal: Signed, field: Field) -> Constant:
    """A float of the column's width: 0.1 then equals a stored 0.1, which double precision would deny."""
    value = _as_float(literal)
    if field.table != "Float32":
        return Constant(value, Type.FLOAT, "Float64")
    try:
        narrow: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        narrow = math.inf
    if math.isinf(narrow) or (value and not narrow):
        raise _out_of_range(literal, field, allowed="0, or a magnitude of 1.4e-45 to 3.4e38, as 32-bit floats are")
    return Constant(narrow, Type.FLOAT, "Float32")


def _integer(literal: Signed, field: Field) -> Constant:
    exact = literal.exact
    if not field.low <= exact <= field.high:
        hint = f"write missing({field.name}) for rows without it" if exact == field.absent else ""
        raise _out_of_range(literal, field, allowed=f"{field.low} to {field.high}", hint=hint)
    return Constant(_whole(literal, low=field.low, high=field.high), field.type, field.table)


def _string(literal: nodes.Text, field: Field) -> Constant:
    if field.table == "Array(UInt64)":
        return Constant(_shape(literal, field), Type.STRING, "String")
    if not literal.value and field.absent == "":
        message = f"an empty {field.name} counts as missing, and nothing compares with what is missing"
        raise TqlTypeError("empty_string", message, place=literal.place, hint=f"write missing({field.name})")
    return Constant(literal.value, Type.STRING, "String")


def _shape(literal: nodes.Text, field: Field) -> str:
    """A shape as rows have it: another spelling would equal none."""
    if not _SHAPE.fullmatch(literal.value):
        message = f"{text_of(literal)} is no {field.name}"
        expected, hint = ('"[2, 3]"',), 'write its sizes in brackets: "[2, 3]", or "[]" of a single number'
        raise TqlTypeError("bad_shape", message, place=literal.place, expected=expected, hint=hint)
    return f"[{', '.join(_SIZE.findall(literal.value))}]"


def _word(literal: nodes.Text, field: Field) -> Constant:
    words = _codes(field.vocabulary)
    if literal.value not in words:
        message = f"{text_of(literal)} is no word of {field.name}"
        raise TqlTypeError(
            "unknown_word",
            message,
            place=literal.place,
            expected=tuple(words),
            hint=_nearest_word(literal.value, words),
        )
    return Constant(words[literal.value], Type.WORD, "UInt8")


@functools.cache
def _codes(vocabulary: Vocabulary) -> dict[str, int]:
    return {word.value: word.code for word in vocabulary}


def _nearest_word(given: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(given.lower(), list(words), n=1, cutoff=0.5)
    return f'did you mean "{near[0]}"?' if near else "write one of its words"


def _id(literal: nodes.Text, field: Field) -> Constant:
    long = field.id_digits == 32
    digits = literal.value.lower().replace("-", "") if long else literal.value.lower()
    if not re.fullmatch(f"[0-9a-f]{{{field.id_digits}}}", digits):
        message = f"{text_of(literal)} is no id as {field.name} has it"
        expected = (f"{field.id_digits} hexadecimal digits",)
        raise TqlTypeError(
            "bad_id", message, place=literal.place, expected=expected, hint=f"copy it from a {field.name}"
        )
    if field.absent == 0 and not int(digits, 16):
        message = f"the id 0 stands for a missing {field.name}, and nothing compares with what is missing"
        raise TqlTypeError("out_of_range", message, place=literal.place, hint=f"write missing({field.name})")
    return Constant(digits, Type.ID, "String")


def _time(literal: nodes.Text, field: Field) -> Constant:
    found = _FRACTION.fullmatch(literal.value)
    whole, fraction = (found[1] + found[3], found[2]) if found else (literal.value, "")
    try:
        moment = dt.datetime.fromisoformat(whole)
    except ValueError as error:
        message = f"{text_of(literal)} is no time"
        shape = '"2026-11-29T12:00:00Z"'
        raise TqlTypeError(
            "bad_time", message, place=literal.place, expected=(shape,), hint=f"write {shape}"
        ) from error
    if moment.microsecond:
        message, hint = f"the fraction of {text_of(literal)} is not read", 'write 1 to 9 decimals: "12:00:00.123456789"'
        raise TqlTypeError("bad_time", message, place=literal.place, hint=hint)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    seconds = (aware - _EPOCH) // dt.timedelta(seconds=1)
    value = seconds * 1_000_000_000 + int(fraction.ljust(9, "0") or 0)
    if not field.low <= value <= field.high:
        raise _out_of_range(literal, field, allowed="the years 2000 to 2199")
    return Constant(value, Type.TIME, "Int64")


_FROM_TEXT: dict[Type, Callable[[nodes.Text, Field], Constant]] = {
    Type.STRING: _string,
    Type.WORD: _word,
    Type.ID: _id,
    Type.TIME: _time,
}
