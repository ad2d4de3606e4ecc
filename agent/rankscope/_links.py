"""Links: spans and traces that a span is related to, in any of the ways that programs hold them.

Promises: what is no link is left out, never an error; an id that is none is the caller's mistake, said at once.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import cast

from rankscope._bounds import LINKS
from rankscope._checked import hex_id
from rankscope._span_ref import LOWER, SpanRef

LINK_BYTES = 160
"""Memory of a link: a tuple of three numbers."""

Link = tuple[int, int, int]
"""A linked span: trace id's upper and lower half, span id (0: the whole trace)."""

Linkable = SpanRef | Mapping[str, object] | tuple[str, str]
"""What can be linked to: a span, a carrier or another mapping with `trace_id` and `span_id`, a pair of both."""


def link_to(target: object) -> Link | None:
    """A link to a span; None where the target is none of `Linkable`.

    Raises:
        ValueError: an id is not one.
    """
    if isinstance(target, SpanRef):
        return target.trace_hi, target.trace_lo, target.id
    if isinstance(target, Mapping):
        named = cast("Mapping[str, object]", target)
        return _linked(named.get("trace_id"), named.get("span_id"))
    pair = cast("tuple[object, ...]", target) if isinstance(target, tuple | list) else ()
    return _linked(pair[0], pair[1]) if len(pair) == 2 else None


def targets_of(given: object) -> list[object]:
    """The targets in what was given, one more than may be kept at most; a single one is taken as such.

    Raises:
        Exception: whatever a foreign container raises; TypeError where it is none.
    """
    if isinstance(given, SpanRef | Mapping):
        return [cast("object", given)]
    return list(islice(cast("Iterable[object]", given), LINKS + 1))


def _linked(trace_id: object, span_id: object) -> Link | None:
    if trace_id is None:
        return None
    trace = hex_id(trace_id, 32)
    return trace >> 64, trace & LOWER, 0 if span_id is None else hex_id(span_id, 16)
