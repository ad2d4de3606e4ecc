"""What training code states of a span or a step: what is not one is said at once, as the caller's mistake."""

import operator
from typing import SupportsIndex

from rankscope_proto.names import Capture, Severity, SpanKind, SpanStatus

MAX_INT64 = 2**63 - 1
MAX_RANK = 2**31 - 1

KINDS: dict[str, int] = {kind.value: kind.code for kind in SpanKind}
STATUSES: dict[str, int] = {status.value: status.code for status in SpanStatus}
SEVERITIES: dict[str, int] = {severity.value: severity.code for severity in Severity}
_HEX = frozenset("0123456789abcdefABCDEF")


def checked_step(step: object) -> int:
    """The step as an int; 42.0 is 42.

    Raises:
        ValueError: not a whole number from 0 to 2**63 - 1.
    """
    if type(step) is int and 0 <= step <= MAX_INT64:  # the usual one, without another call
        return step
    number = int(step) if isinstance(step, float) and step.is_integer() else whole_number(step)
    if number is None or not 0 <= number <= MAX_INT64:
        raise ValueError(f"a step is a whole number from 0 to 2**63 - 1, not {step!r}")
    return number


def checked_rank(rank: object) -> int:
    """The rank as an int.

    Raises:
        TypeError: not a whole number, or a bool.
        ValueError: below 0 or above 2**31 - 1.
    """
    number = whole_number(rank)
    if number is None:
        raise TypeError(f"a rank is a whole number, not {rank!r}")
    if not 0 <= number <= MAX_RANK:
        raise ValueError(f"a rank is from 0 to 2**31 - 1, not {rank!r}")
    return number


def checked_name(name: object) -> str:
    """The name as a plain text with something in it, as long as it was given.

    Raises:
        TypeError: not a text.
        ValueError: nothing in it but white space.
    """
    if not isinstance(name, str):
        raise TypeError(f"a name is a text, not a {type(name).__qualname__}")
    if not name or name.isspace():
        raise ValueError(f"a name has at least one character that shows, unlike {name!r}")
    return str(name)


def kind_code(kind: object) -> int:
    """The code of a kind in whatever case.

    Raises:
        TypeError: not a text.
        ValueError: naming the kinds there are.
    """
    return _code(KINDS, kind, what="a span's kind")


def severity_code(level: object) -> int:
    """The code of a severity in whatever case.

    Raises:
        TypeError: not a text.
        ValueError: naming the severities there are.
    """
    return _code(SEVERITIES, level, what="a level")


def checked_end(status: object, error: object) -> int:
    """The code of the status that a span ends with, for an exception or without one.

    Raises:
        TypeError: the status is no text, or the error no exception.
        ValueError: naming the statuses there are.
    """
    if error is not None and not isinstance(error, BaseException):
        raise TypeError(f"an error is an exception, not a {type(error).__qualname__}: say it in an attribute")
    return _code(STATUSES, status, what="a span's status")


def is_preview(capture: object) -> bool:
    """Whether payloads are captured.

    Raises:
        TypeError: not a text.
        ValueError: naming the choices.
    """
    return _code({choice.value: choice.code for choice in Capture}, capture, what="capture") == Capture.PREVIEW.code


def _code(codes: dict[str, int], word: object, *, what: str) -> int:
    if not isinstance(word, str):
        raise TypeError(f"{what} is a text, one of {', '.join(codes)}; not {word!r}")
    code = codes.get(word.casefold())
    if code is None:
        raise ValueError(f"{what} is one of {', '.join(codes)}, not {word!r}")
    return code


def whole_number(value: object) -> int | None:
    """The value of an int or of what stands for one, such as numpy's; None for anything else."""
    if type(value) is int:  # the usual one: the question below takes as long as all else of a log call
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of several numbers has the method too
        return None


def hex_id(text: object, digits: int) -> int:
    """The value of an id of so many hex digits, in whatever case.

    Raises:
        ValueError: another length, other characters, or zero.
    """
    is_hex = isinstance(text, str) and len(text) == digits and _HEX.issuperset(text)  # `int` would take 0x and _ too
    value = int(text, 16) if is_hex and isinstance(text, str) else 0
    if not value:
        raise ValueError(f"an id here is {digits} hex digits, not all zero, not {text!r}")
    return value
