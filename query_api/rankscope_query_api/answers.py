"""How answers are written: the JSON conventions of every route and the paging envelope.

Fields ending in `_ns` travel as strings, for JavaScript's numbers end at 2**53; NaN and the infinities, which JSON
has no numbers for, as `"NaN"`, `"Infinity"`, `"-Infinity"`; a time is ISO-8601 with nanoseconds beside its `_ns`.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import islice
from typing import TypeAlias, cast

import orjson
from starlette.responses import Response

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""Anything JSON can hold, before the conventions are applied."""

Key: TypeAlias = tuple[int | str, ...]
"""Where a page ends: the values of the total order's columns in its last row."""

ROWS_AT_A_TIME = 1_000
"""Rows of which an answer holds a second copy while it is written."""

_SECOND_NS = 10**9
_TO_SECONDS = len("2026-11-29T18:21:53")
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""0001-01-01 and 9999-12-31T23:59:59Z: between them ISO-8601 has four digits for a year."""

_NS = re.compile(r"-?[0-9]{1,19}")
_FRACTION = re.compile(r"(?<=[0-9])[.,][0-9]+")
_BEYOND_US = re.compile(r"(?<=[.,][0-9]{6})[0-9]+")


@dataclass(frozen=True, slots=True)
class Page:
    """What a list route answers.

    Attributes:
        items: The rows of this page, in the route's total order.
        total: Rows there are, over all pages.
        next: The cursor of the next page; None: this is the last.
        warnings: What a reader of the items should know.
        gaps: Stated absences inside what was asked for.
    """

    items: Sequence[Mapping[str, Json]]
    total: int
    next: str | None = None
    warnings: Sequence[str] = ()
    gaps: Sequence[Mapping[str, Json]] = ()

    def as_json(self) -> dict[str, Json]:
        """The envelope."""
        return {
            "items": self.items,
            "total": self.total,
            "returned": len(self.items),
            "truncated": self.next is not None,
            "next": self.next,
            "warnings": self.warnings,
            "gaps": self.gaps,
        }


def json_answer(value: Json, *, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A response whose body follows the conventions."""
    return Response(orjson.dumps(conventional(value)), status_code=status, media_type="application/json")


def json_of_rows(rows: Iterable[Json]) -> Json:
    """Rows that follow the conventions, as JSON for an answer that holds many.

    They are taken a few at a time, so that no copy of all stands beside it.
    """
    waiting, pieces = iter(rows), list[bytes]()
    while some := list(islice(waiting, ROWS_AT_A_TIME)):
        pieces.append(orjson.dumps(some)[1:-1])
    return cast("Json", orjson.Fragment(b"[" + b",".join(pieces) + b"]"))


_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
"""Types that no convention is about but that of `_ns`. Most values are of one of them, and to ask each which protocols
it has was more than half of what this process does for a page of 100 spans."""


def conventional(value: Json) -> Json:
    """The value with the conventions applied, at any depth."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _non_finite(value)
    if isinstance(value, dict | Mapping):  # a dict is one without a look at what a Mapping is
        return {name: _field(name, inner) for name, inner in value.items()}
    if isinstance(value, list | Sequence) and not isinstance(value, str):
        return [conventional(inner) for inner in value]
    return value


def _field(name: str, value: Json) -> Json:
    if type(value) in _AS_THEY_ARE:
        return str(value) if name.endswith("_ns") and isinstance(value, int) else value
    return conventional(value)


def _non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def moment(name: str, time_ns: int | None) -> dict[str, Json]:
    """A time as two fields: `name`, ISO-8601 with nine decimals in UTC, and `name_ns`, ns since the epoch."""
    if time_ns is None:
        return {name: None, f"{name}_ns": None}
    return {name: iso_time(time_ns), f"{name}_ns": time_ns}


def iso_time(ticks: int, digits: int = 9) -> str:
    """A time as ISO-8601 in UTC; as a number of seconds where a year has no four digits.

    Args:
        ticks: 10 ** -digits s since the epoch.
        digits: Decimals, 0 to 9.
    """
    whole, fraction = divmod(ticks, 10**digits)
    if not _FIRST_SECOND <= whole <= _LAST_SECOND:
        return str(whole)
    text = datetime.fromtimestamp(whole, UTC).isoformat()[:_TO_SECONDS]
    return f"{text}.{fraction:0{digits}d}Z" if digits else f"{text}Z"


def moment_ns(text: str) -> int:
    """The ns since the epoch of a time as `moment` writes it, or as ns since the epoch; UTC where no zone is named.

    Raises:
        ValueError: The text is neither, or a time that no column holds.
    """
    if _NS.fullmatch(text):
        time_ns = int(text)
    else:
        whole = datetime.fromisoformat(_BEYOND_US.sub("", text))
        whole = whole if whole.tzinfo else whole.replace(tzinfo=UTC)
        fraction = found[0][1:] if (found := _FRACTION.search(text)) else ""
        seconds = (whole.replace(microsecond=0) - datetime.fromtimestamp(0, UTC)) // timedelta(seconds=1)
        time_ns = seconds * _SECOND_NS + int(fraction.ljust(9, "0")[:9])
    if abs(time_ns) >= 2**63:
        raise ValueError(f"{text} is beyond the year 2262")
    return time_ns
