"""How each field of an event is read: its type, range and length, as the system whose clients come here documents them.

A reader takes what JSON gave and returns what is kept, or raises `Wrong` with the reason. It knows neither the event
nor the field's name: `events` adds them.
"""

import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import orjson

from rankscope.front.errors import FrontError
from rankscope_proto.names import SpanKind

NAME_BYTES = 512
PREVIEW_BYTES = 4 * 1024
ATTRIBUTES_BYTES = 32 * 1024
METRICS_BYTES = 16 * 1024
LINKS_BYTES = 16 * 1024
MAX_DEPTH = 254
"""Of nesting: what is read may be deeper than what can be written again."""

EVENT_KINDS = ("started", "updated", "finished", "exception", "interrupted")
STATUSES = ("running", "ok", "error", "cancelled", "interrupted")
POLICIES = ("off", "preview")
REDACTIONS = ("not_captured", "redacted", "truncated", "captured")

MAX_SEQUENCE = 2**64 - 1
MAX_RANK = 2**31 - 1
MAX_DURATION_NS = 100 * 366 * 86_400 * 10**9
"""A century: a start plus a duration stays within 64 bits."""

_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])(\d{2}):(\d{2}))", re.ASCII
)
MAX_HOURS, MAX_MINUTES = 23, 59
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 60


class Wrong(FrontError):  # noqa: N818  # a verdict on a value, turned into an error where the field is known
    """A value cannot be meant; the message says what it is and what it should be."""


def trace_id(given: object) -> bytes:
    """The 16 bytes of a trace id."""
    return _hex_id(given, 16)


def span_id(given: object) -> bytes:
    """The 8 bytes of a span id."""
    return _hex_id(given, 8)


def parent_id(given: object) -> str:
    """A parent's id: 16 hex digits in lower case."""
    return _hex_id(given, 8).hex()


def event_id(given: object) -> str:
    """A UUID in its usual writing."""
    try:
        return str(uuid.UUID(text(given)))
    except ValueError:
        raise Wrong(f"is {_shown(given)}: it is a UUID") from None


def sequence(given: object) -> int:
    """The number of an event in its span."""
    return _whole(given, MAX_SEQUENCE)


def rank(given: object) -> int:
    """A global rank."""
    return _whole(given, MAX_RANK)


def step(given: object) -> int | float:
    """A training step or an episode: whole where it is, for the column of steps takes no other."""
    number = _finite(given)
    return int(number) if number == int(number) and abs(number) < 2**63 else number


def duration_ns(given: object) -> int:
    """Milliseconds, as ns."""
    number = _finite(given)
    if not 0 <= number * 1e6 <= MAX_DURATION_NS:
        raise Wrong(f"is {_shown(given)}: it is from 0 to {MAX_DURATION_NS // 10**6}")
    return round(number * 1e6)


def moment_ns(given: object) -> int:
    """An RFC 3339 time, as ns since the epoch."""
    found = _MOMENT.fullmatch(text(given))
    if found is None:
        raise Wrong(f"is {_shown(given)}: it is a time such as 2026-11-30T08:15:00.250Z")
    try:
        whole = datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00") - _EPOCH
    except ValueError as error:
        raise Wrong(f"is {_shown(given)}: {error}") from None
    hours, minutes = int(found[5] or 0), int(found[6] or 0)
    if hours > MAX_HOURS or minutes > MAX_MINUTES:
        raise Wrong(f"is {_shown(given)}: its offset is beyond 23:59")
    ahead = timedelta(hours=hours, minutes=minutes)
    seconds = whole - ahead if found[4] != "-" else whole + ahead
    return seconds // timedelta(seconds=1) * 10**9 + int((found[3] or "0").ljust(9, "0"))


def name(given: object) -> str:
    """A span's name: what is left of it without blanks around it."""
    found = short(given).strip()
    if not found:
        raise Wrong("is empty: a span has a name")
    return found


def short(given: object) -> str:
    """A text of at most `NAME_BYTES`."""
    return _within(text(given), NAME_BYTES)


def preview(given: object) -> str:
    """A text of at most `PREVIEW_BYTES`."""
    return _within(text(given), PREVIEW_BYTES)


def attributes(given: object) -> Mapping[str, object]:
    """An object of at most `ATTRIBUTES_BYTES`."""
    return _object(given, ATTRIBUTES_BYTES)


def metrics(given: object) -> Mapping[str, object]:
    """An object of at most `METRICS_BYTES`."""
    return _object(given, METRICS_BYTES)


def links(given: object) -> object:
    """An object or a list of at most `LINKS_BYTES`."""
    if not isinstance(given, (dict, list)):
        raise Wrong(f"is {_shown(given)}: it is an object or a list")
    return _sized(cast("object", given), LINKS_BYTES)


def switch(given: object) -> bool:
    """True or false."""
    if not isinstance(given, bool):
        raise Wrong(f"is {_shown(given)}: it is true or false")
    return given


def one_of(words: Sequence[str]) -> Callable[[object], str]:
    """A reader of a closed vocabulary, in any case."""

    def read(given: object) -> str:
        found = text(given).casefold()
        if found not in words:
            raise Wrong(f"is {_shown(given)}: it is one of {', '.join(words)}", expected=words)
        return found

    return read


kind = one_of([kind.value for kind in SpanKind])


def text(given: object) -> str:
    """A text."""
    if not isinstance(given, str):
        raise Wrong(f"is {_shown(given)}: it is a text")
    return given


def _hex_id(given: object, size: int) -> bytes:
    found = text(given)
    is_hex = len(found) == 2 * size and found.isascii() and found.isalnum()
    try:
        read = bytes.fromhex(found) if is_hex else b""
    except ValueError:
        read = b""
    if not any(read):
        raise Wrong(f"is {_shown(given)}: it is {2 * size} hex digits, not all 0")
    return read


def _whole(given: object, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
        raise Wrong(f"is {_shown(given)}: it is a whole number from 0 to {most}")
    return given


def _finite(given: object) -> int | float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given):
        raise Wrong(f"is {_shown(given)}: it is a finite number")
    return given


def _within(found: str, most: int) -> str:
    size = len(found.encode())
    if size > most:
        raise Wrong(f"has {size} bytes: it has at most {most}")
    return found


def _object(given: object, most: int) -> Mapping[str, object]:
    if not isinstance(given, dict):
        raise Wrong(f"is {_shown(given)}: it is an object")
    return cast("Mapping[str, object]", _sized(cast("object", given), most))


def _sized(given: object, most: int) -> object:
    try:
        size = len(orjson.dumps(given))
    except orjson.JSONEncodeError:
        raise Wrong(f"is nested deeper than {MAX_DEPTH}") from None
    if size > most:
        raise Wrong(f"has {size} bytes as JSON: it has at most {most}")
    return given


def _shown(given: object) -> str:
    """A value as a message may show it: its beginning, and of what is no scalar only what it is."""
    if isinstance(given, (dict, list)):
        return "an object" if isinstance(given, dict) else "a list"
    if given is None:
        return "null"
    shown = repr(given)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
