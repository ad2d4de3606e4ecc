"""Answers as JSON, CSV or an Arrow stream: the same rows, each written as its column's type asks for.

JSON follows the conventions of every route. CSV is RFC 4180 with a header; nothing between two commas is a missing
value, `""` an empty text, lists and maps are JSON, times ISO-8601 in UTC. Arrow keeps the types: 64-bit integers and
times in ns are whole there, which JavaScript's numbers are not. What JSON says beside the rows travels in headers.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cache
from typing import Any, cast

import orjson
from starlette.responses import Response

from rankscope_proto.names import GapClass
from rankscope_query_api.answers import ROWS_AT_A_TIME, Json, conventional, iso_time, json_answer, json_of_rows


class Format(StrEnum):
    """How an answer is written."""

    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


MEDIA_TYPES = {
    Format.JSON: "application/json",
    Format.CSV: "text/csv",
    Format.ARROW: "application/vnd.apache.arrow.stream",
}
"""What an answer says it is, and what a request asks for it by."""

_WRAPPED = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")
_OUTER = re.compile(r"(\w+)(?:\((.*)\))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an answer, by columns.

    Attributes:
        names: Names of the columns, each once.
        types: Their ClickHouse types; "": whatever the values are.
        columns: Their values, all equally long; times as the ticks of their type.
    """

    names: Sequence[str]
    types: Sequence[str]
    columns: Sequence[Sequence[Any]]

    @classmethod
    def of_items(cls, items: Sequence[Mapping[str, Any]], names: Sequence[str]) -> "Rows":
        """The rows that objects are: a column for each of these names, also where none of them has it."""
        columns = [[item.get(name) for item in items] for name in names]
        return cls(tuple(names), ("",) * len(names), columns)

    def items(self) -> Iterator[dict[str, Any]]:
        """The rows as JSON's objects, a few at a time: all at once they take several times what the columns take."""
        for begin in range(0, len(self.columns[0]) if self.columns else 0, ROWS_AT_A_TIME):
            some = [column[begin : begin + ROWS_AT_A_TIME] for column in self.columns]
            columns = zip(self.names, some, self.types, strict=True)
            said = [json_values(name, values, kind=kind) for name, values, kind in columns]
            yield from (dict(zip(self.names, row, strict=True)) for row in zip(*said, strict=True))


def wanted(named: Format | None, accept: str | None) -> Format:
    """The format that a request names, or that its `Accept` header asks for first and not with `q=0`; else JSON."""
    if named is not None:
        return named
    known = {media: form for form, media in MEDIA_TYPES.items()}
    parts = [part.lower().replace(" ", "").split(";") for part in (accept or "").split(",")]
    asked = (media for media, *more in parts if not any(re.fullmatch(r"q=0(\.0*)?", one) for one in more))
    return next((known[media] for media in asked if media in known), Format.JSON)


def response(said: Mapping[str, Json], rows: Rows, *, form: Format) -> Response:
    """The response that holds these rows.

    Args:
        said: What JSON says; `items` of it may be empty where the rows say them.
        rows: The rows as the other formats write them.
        form: How they are written.
    """
    if form is Format.JSON:
        items = cast("Sequence[Mapping[str, Json]]", said["items"])
        listed = map(conventional, items) if items else rows.items()
        return json_answer({**said, "items": json_of_rows(listed)})
    body = as_csv(rows) if form is Format.CSV else as_arrow(rows)
    return Response(body, media_type=MEDIA_TYPES[form], headers=_headers(said))


def _headers(said: Mapping[str, Json]) -> dict[str, str]:
    told = {name: said.get(name) for name in ("total", "returned", "truncated", "next")}
    counts = {name: len(found) for name in ("warnings", "gaps") if isinstance(found := said.get(name), list | tuple)}
    if "gaps" in counts:
        gaps = cast("Sequence[Mapping[str, Json]]", said["gaps"])
        counts["gaps-lost"] = sum(gap["class"] == GapClass.LOST for gap in gaps)
    return {f"x-rankscope-{name}": _header(value) for name, value in {**told, **counts}.items() if value is not None}


def _header(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_csv(rows: Rows) -> bytes:
    """The rows as CSV."""
    written = [json_values("", column, kind=kind) for column, kind in zip(rows.columns, rows.types, strict=True)]
    lines = [",".join(map(_quoted, rows.names))]
    lines += [",".join(map(_cell, row)) for row in zip(*written, strict=True)]
    return ("\r\n".join(lines) + "\r\n").encode("utf-8", "replace")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        return _quoted(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str).decode())
    return str(value)


def _quoted(text: str) -> str:
    if text and not re.search(r'[",\r\n]', text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _json_text(value: Any) -> str:
    return orjson.dumps(conventional(value), option=orjson.OPT_NON_STR_KEYS, default=str).decode()


def _pyarrow() -> Any:
    """The library; untyped, and loaded when it is first asked for: that takes a quarter of a second."""
    import pyarrow as pa

    return pa


def as_arrow(rows: Rows) -> bytes:
    """The rows as one Arrow IPC stream."""
    pa = _pyarrow()
    arrays = [_array(column, kind) for column, kind in zip(rows.columns, rows.types, strict=True)]
    table = pa.Table.from_arrays(arrays, names=list(rows.names))
    written = io.BytesIO()
    with pa.ipc.new_stream(written, table.schema) as stream:
        stream.write_table(table)
    return written.getvalue()


def _array(values: Sequence[Any], kind: str) -> Any:
    pa = _pyarrow()
    shaped = [_pairs(value) for value in values] if "Map" in kind else values
    try:
        if kind:
            return pa.array(shaped, type=_arrow_type(kind))
        if not any(isinstance(value, Mapping) for value in values):
            return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError, KeyError):
        # A tuple, values of many types, a time beyond 2262: told as text. Whole numbers beyond 2^63 are numbers yet.
        if not kind and all(value is None or (type(value) is int and 0 <= value < 2**64) for value in values):
            return pa.array(values, type=pa.uint64())
    return pa.array([_text(value) for value in _written(values, kind)], type=pa.string())


def _pairs(value: Any) -> Any:
    return list(cast("dict[Any, Any]", value).items()) if isinstance(value, dict) else value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _json_text(value)


@cache
def _arrow_type(kind: str) -> Any:
    """The Arrow type of a ClickHouse type.

    Raises:
        KeyError: There is none.
    """
    pa = _pyarrow()
    outer, inner = _parts(kind)
    if outer == "Array":
        return pa.list_(_arrow_type(inner[0]))
    if outer == "Map":
        return pa.map_(_arrow_type(inner[0]), _arrow_type(inner[1]))
    if outer == "DateTime64":
        return pa.timestamp({"0": "s", "3": "ms", "6": "us", "9": "ns"}[inner[0]], tz="UTC")
    plain: dict[str, Any] = {
        "String": pa.string(),
        "Bool": pa.bool_(),
        "Float32": pa.float32(),
        "Float64": pa.float64(),
        "Date": pa.date32(),
        "DateTime": pa.timestamp("s", tz="UTC"),
        "Nothing": pa.null(),
        **{f"Int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
        **{f"UInt{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
    }
    return plain[outer]


def _parts(kind: str) -> tuple[str, tuple[str, ...]]:
    """A type without Nullable and LowCardinality: its name, and what stands in its brackets."""
    while wrapped := _WRAPPED.fullmatch(kind):
        kind = wrapped[1]
    found = _OUTER.fullmatch(kind)
    return (found[1], tuple(_split(found[2] or ""))) if found else (kind, ())


def _split(text: str) -> Iterable[str]:
    """The parts between commas that stand in no bracket."""
    depth = begin = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            yield text[begin:at].strip()
            begin = at + 1
    if text:
        yield text[begin:].strip()


def json_values(name: str, values: Sequence[Any], *, kind: str) -> Sequence[Any]:
    """The values of a column as the JSON conventions have them; looked at one by one only where its type asks for it.

    80 MB of arrays of whole numbers took 4 s when each number was asked what it is, and take a tenth of that now.

    Args:
        name: Of the column.
        values: Its values.
        kind: Its ClickHouse type; "": whatever the values are.
    """
    written = _written(values, kind)
    if name.endswith("_ns") and re.fullmatch(r"U?Int\d+", _parts(kind)[0]):
        return [None if value is None else str(value) for value in written]
    if _is_as_it_is(kind):
        return written
    if re.fullmatch(r"Array\(Float\d+\)", kind):
        return [value if all(map(math.isfinite, value)) else conventional(value) for value in written]
    return [conventional(value) for value in written]


@cache
def _is_as_it_is(kind: str) -> bool:
    """Whether no convention is about the written values of a type."""
    outer, inner = _parts(kind)
    if outer == "Array":
        return _is_as_it_is(inner[0])
    if outer == "Map":
        return _parts(inner[1])[0] == "String"
    return not re.fullmatch(r"Float\d+|Tuple|", outer)


def _written(values: Sequence[Any], kind: str) -> Sequence[Any]:
    """The values as JSON and CSV write them."""
    write = _writer(kind)
    return values if write is None else [None if value is None else write(value) for value in values]


@cache
def _writer(kind: str) -> Callable[[Any], Any] | None:
    """How a value of a type is written; None: as it is."""
    outer, inner = _parts(kind)
    if outer == "DateTime":
        return lambda ticks: iso_time(ticks, 0)
    if outer == "DateTime64":
        digits = int(inner[0])
        return lambda ticks: iso_time(ticks, digits)
    if outer == "Array" and (write := _writer(inner[0])) is not None:
        return lambda values: [None if value is None else write(value) for value in values]
    if outer == "Tuple":
        return list
    if outer == "Map":
        inside = _writer(inner[1]) or _same
        return lambda values: {str(key): inside(value) for key, value in values.items()}
    is_known = outer in ("String", "Bool", "Array", "Nothing", "") or re.fullmatch(r"U?Int\d+|Float\d+", outer)
    return None if is_known else _plain


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    """A date, or what no view has: as text."""
    return value.isoformat() if isinstance(value, date) else str(value)
