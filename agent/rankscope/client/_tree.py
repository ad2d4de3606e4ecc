"""Trees of spans, read a page at a time as they are walked: one trace by its id, or a step across ranks.

Nothing here recurses: a trace may be nested deeper than Python's stack.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from rankscope.client import _html
from rankscope.client._shown import printable
from rankscope.client._values import decoded
from rankscope.up import Json

SPANS_A_PAGE = 1_000

_SHOWN = 200
"""Rows of a tree that is shown as text."""

_TOLD = ("run_id", "trace_id", "step", "name", "status", "spans")
"""What of a tree's info its `repr` tells."""

_DURATIONS = ("duration_ns", "median_ns")


class Reader(Protocol):
    """Reads a route of one trace."""

    def __call__(self, below: str, **parameters: str | int | None) -> Json:
        """The answer of the route whose path below the trace is given."""
        ...


class TraceWalk:
    """A trace whose spans are read as they are come to.

    Args:
        read: reads below the trace: "" is the trace itself, "/spans" its spans.
        first: most roots to read at once.
    """

    def __init__(self, read: Reader, *, first: int = SPANS_A_PAGE) -> None:
        self._read = read
        self.detail = read("", limit=min(first, SPANS_A_PAGE))

    @property
    def total(self) -> int:
        """Spans of the trace, those that run among them."""
        return int(self.detail["spans"]) + int(self.detail["running"])

    def rows(self, begin: int, end: int) -> list[Json]:
        """The spans from one place of the tree to another, a parent before its children, each with its depth."""
        return list(itertools.islice(self.walk(), begin, end))

    def walk(self) -> Iterator[Json]:
        """Every span, a parent before its children, each with its `depth`: 0 is a root's."""
        levels = [self._siblings(self.detail, parent=None)]
        while levels:
            span = next(levels[-1], None)
            if span is None:
                levels.pop()
                continue
            yield {**span, "depth": len(levels) - 1}
            if span["child_count"]:
                parent = str(span["span_id"])
                page = self._read("/spans", parent=parent, limit=SPANS_A_PAGE)
                levels.append(self._siblings(page, parent=parent))

    def _siblings(self, page: Json, *, parent: str | None) -> Iterator[Json]:
        while True:
            yield from page["items"]
            if not page["next"]:
                return
            page = self._read("/spans", parent=parent, limit=SPANS_A_PAGE, after=page["next"])


def window_rows(window: Mapping[str, Any]) -> list[Json]:
    """The rows of what is around a span, a parent before its children, each with its `depth` from the first ancestor.

    The span itself has `is_meant`.
    """
    rows = [{**row, "depth": depth, "is_meant": False} for depth, row in enumerate(window["ancestors"])]
    level = len(rows)
    for place, row in enumerate(window["items"]):
        is_meant = place == window["at"]
        rows.append({**row, "depth": level, "is_meant": is_meant})
        if is_meant:
            rows += [{**child, "depth": level + 1, "is_meant": False} for child in window["children"]]
    return rows


class Tree:
    """A tree of rows: iterate over it for a parent before its children, each with its `depth`.

    Attributes:
        info: what is known of the whole: of a trace its name, status, times and counts, of a step its ranks.
    """

    def __init__(self, info: Mapping[str, Any], walk: Callable[[], Iterator[Json]]) -> None:
        self.info = decoded(info)
        self._walk = walk

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every row, a parent before its children; read anew each time."""
        return map(decoded, self._walk())

    def nested(self) -> list[dict[str, Any]]:
        """The roots, each row with its children as a list under `children`."""
        roots: list[dict[str, Any]] = []
        open_rows: list[dict[str, Any]] = []
        for found in self:
            row: dict[str, Any] = {**found, "children": []}
            del open_rows[int(row["depth"]) :]
            (open_rows[-1]["children"] if open_rows else roots).append(row)
            open_rows.append(row)
        return roots

    def _lines(self) -> Iterator[str]:
        for row in itertools.islice(self, _SHOWN):
            indent, name = "  " * int(row["depth"]), printable(str(row["name"]))
            took = next((row[key] for key in _DURATIONS if row.get(key) is not None), None)
            yield f"{indent}{name}" + ("" if took is None else f"  {int(took) / 1e6:.3f} ms") + _status(row)

    def __str__(self) -> str:
        """The first rows, indented, with their durations."""
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        """What is known of the whole; nothing is read for it."""
        known = ", ".join(f"{name}={self.info[name]!r}" for name in _TOLD if name in self.info)
        return f"<Tree: {known}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, escaped."""
        return _html.preformatted(self._lines())


def _status(row: Mapping[str, Any]) -> str:
    return f"  {printable(str(row['status']))}" if row.get("status") not in {None, "", "ok"} else ""
