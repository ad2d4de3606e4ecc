"""The W3C `traceparent` header: how a trace crosses systems that know nothing of each other.

`00-<trace id, 32 hex>-<parent span id, 16 hex>-<flags, 2 hex>`, as https://www.w3.org/TR/trace-context/ has it.
Promises: what is read is exactly what the recommendation allows; later versions may append fields, which are ignored.
"""

import re
from typing import NamedTuple

_SAMPLED = 1
_FIELDS = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_VERSION_0, _FORBIDDEN = "00", "ff"


class Traceparent(NamedTuple):
    """A span elsewhere: the trace's id (128 bits) and the span's own (64 bits), neither zero; whether it is kept."""

    trace: int
    span: int
    is_kept: bool = True

    def __str__(self) -> str:
        return f"{_VERSION_0}-{self.trace:032x}-{self.span:016x}-{_SAMPLED if self.is_kept else 0:02x}"


def read_traceparent(text: str) -> Traceparent:
    """The span that a `traceparent` names.

    Whether it is kept there decides nothing here: what is kept here is decided here, alike on every rank.

    Raises:
        ValueError: it is none; says what one looks like.
    """
    found = _FIELDS.fullmatch(text.strip())
    if found is not None:
        version, trace, span, flags, more = found.groups()
        is_known = version != _FORBIDDEN and not (version == _VERSION_0 and more)
        if is_known and int(trace, 16) and int(span, 16):
            return Traceparent(int(trace, 16), int(span, 16), bool(int(flags, 16) & _SAMPLED))
    raise ValueError(
        f"{text[:100]!r} is no W3C traceparent: it is 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, all in lower "
        "case, and neither id all zero"
    )
