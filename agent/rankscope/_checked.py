"""Steps and ids given by training code: what is not one is said at once, as the caller's mistake."""

import operator
from typing import SupportsIndex

MAX_INT64 = 2**63 - 1


def checked_step(step: object) -> int:
    """The step as an int.

    Raises:
        ValueError: not a whole number from 0 to 2**63 - 1.
    """
    if type(step) is int and 0 <= step <= MAX_INT64:  # the usual one, without another call
        return step
    number = whole_number(step)
    if number is None or not 0 <= number <= MAX_INT64:
        raise ValueError(f"a step is a whole number from 0 to 2**63 - 1, not {step!r}")
    return number


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
    """The value of an id of so many hex digits.

    Raises:
        ValueError: another length, other characters, or zero.
    """
    valid = isinstance(text, str) and len(text) == digits and text.isascii() and text.isalnum()
    try:
        value = int(text, 16) if valid and isinstance(text, str) else 0
    except ValueError:
        value = 0
    if not value:
        raise ValueError(f"an id here is {digits} hex digits, not all zero, not {text!r}")
    return value
