"""The values of a statement's parameters, each held against the type that the statement gives it.

ClickHouse wraps an integer that its type cannot hold, and says nothing; here it is refused.
"""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rankscope_proto.non_finite import NON_FINITE
from rankscope_query_api.errors import InvalidRequestError

Given: TypeAlias = bool | int | float | str | None
"""One value as JSON brings it."""

Bound: TypeAlias = Given | Sequence[Given]
"""A value or a list of values."""

MAX_BYTES = 64 * 1024
"""Of all values together: towards a server they travel in the address of a request."""

_TYPE = re.compile(r"(?:(Array|Nullable)\()?([A-Za-z]+)([0-9]*)")


def bound_values(declared: Mapping[str, str], given: Mapping[str, Bound]) -> dict[str, Bound]:
    """The values by name, as the store takes them.

    Args:
        declared: Type by name, from the statement.
        given: Value by name, from the request.

    Raises:
        InvalidRequestError: One is missing, unused, too long, or not of its type.
    """
    if missing := sorted(declared.keys() - given.keys()):
        raise InvalidRequestError(
            f"the parameter {missing[0]!r} has no value",
            hint=f'send it beside the statement: {{"parameters": {{"{missing[0]}": …}}}}',
        )
    if unused := sorted(given.keys() - declared.keys()):
        raise InvalidRequestError(
            f"no parameter {unused[0][:60]!r} in the statement", hint="name it there, as in {name:Type}"
        )
    values = {name: _value(name, kind, given=given[name]) for name, kind in declared.items()}
    size = sum(_size(value) for value in values.values())
    if size > MAX_BYTES:
        raise InvalidRequestError(f"the parameters have {size} bytes, and may have {MAX_BYTES}", hint="ask in parts")
    return values


def _size(value: Bound) -> int:
    if isinstance(value, str):
        return len(value.encode())
    return sum(_size(one) + 4 for one in value) if isinstance(value, Sequence) else 8


def _value(name: str, kind: str, *, given: Bound) -> Bound:
    outer, base, bits = _TYPE.findall(kind)[0]  # the statement was checked: it is one of BOUND_TYPE
    if outer == "Array":
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise _wrong(name, kind, given=given)
        return [_scalar(name, base, bits=bits, given=one) for one in given]
    if given is None and outer == "Nullable":
        return None
    return _scalar(name, base, bits=bits, given=given)


def _scalar(name: str, base: str, *, bits: str, given: object) -> Given:
    kind = base + bits
    if base == "Bool" and isinstance(given, bool):
        return given
    if base == "String" and isinstance(given, str):
        return _text(name, given)
    if isinstance(given, bool):
        raise _wrong(name, kind, given=given)
    if base == "Float" and isinstance(given, str) and given in NON_FINITE:
        return NON_FINITE[given]
    if base == "Float" and isinstance(given, int | float):
        return _float(name, kind, given=given)
    if base in ("Int", "UInt") and isinstance(given, int):
        low, high = (0, 2 ** int(bits) - 1) if base == "UInt" else (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1)
        if low <= given <= high:
            return given
        raise InvalidRequestError(f"{name} is {str(given)[:60]}", hint=f"{kind} lies in {low}..{high}")
    raise _wrong(name, kind, given=given)


def _text(name: str, given: str) -> str:
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"{name} is no text: half of a surrogate pair is in it", hint="send UTF-8") from None
    return given


_MOST_FLOAT32 = (2 - 2**-24) * 2.0**127
"""From here on a Float32 is rounded to infinity."""


def _float(name: str, kind: str, *, given: float) -> float:
    try:
        found = float(given)
    except OverflowError:
        found = math.inf
    most = _MOST_FLOAT32 if kind == "Float32" else sys.float_info.max
    if abs(found) > most:
        raise InvalidRequestError(f"{name} is beyond {kind}", hint='send "Infinity" if that is meant')
    return found


def _wrong(name: str, kind: str, *, given: object) -> InvalidRequestError:
    return InvalidRequestError(f"{name} is {str(given)[:60]!r}, and {kind} is asked for", hint="send one of its type")
