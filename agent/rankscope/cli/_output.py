"""What people see: tables, carets, durations; what programs see: one JSON document."""

import json
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from rankscope._version import __version__
from rankscope.cli._errors import QueryRefusedError, as_json, hint_of
from rankscope.errors import RankscopeError

COLUMN_LIMIT = 44
"""Wider cells are cut in tables; `--json` has all of them."""

UNITS_NS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3))


def say(line: str = "") -> None:
    """One line on stdout, at once: what reads a pipe should not wait for a full buffer."""
    typer.echo(line)
    sys.stdout.flush()


def say_json(document: object) -> None:
    """The one JSON document on stdout."""
    say(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def version_line() -> str:
    """The version of rankscope and of the Python that runs it."""
    return f"rankscope {__version__} (Python {platform.python_version()})"


def say_aside(line: str) -> None:
    """A remark on stderr, which no program reads as the answer."""
    typer.echo(line, err=True)


def say_warnings(answer: Mapping[str, Any]) -> None:
    """What the service says a reader of its answer should know."""
    warnings: Sequence[str] = answer.get("warnings") or ()
    for warning in warnings:
        say_aside(f"warning: {warning}")


def say_rest(answer: Mapping[str, Any]) -> None:
    """On stderr, that an answer goes on, and how to get its next page."""
    if answer["truncated"]:
        shown = plural(int(answer["returned"]), "row")
        say_aside(f"{shown} of {answer['total']}; the next page: --after {shlex.quote(str(answer['next']))}")


def say_error(error: RankscopeError, *, as_json: bool) -> None:
    """An error on stderr, as text or as one JSON document."""
    typer.echo(_error_document(error) if as_json else _error_text(error), err=True)


def _error_document(error: RankscopeError) -> str:
    return json.dumps(as_json(error), ensure_ascii=False)


def _error_text(error: RankscopeError) -> str:
    lines = [f"error: {error}"]
    if isinstance(error, QueryRefusedError):
        lines += caret(error.text, error.error)
    hint = hint_of(error)
    if hint:
        lines.append(f"hint: {hint}")
    return "\n".join(lines)


def caret(text: str, error: Mapping[str, Any]) -> list[str]:
    """The line of a query that an error points at, the place below it, and what would have been right there."""
    lines: list[str] = []
    position = error.get("position")
    if position:
        number, column = int(position["line"]), int(position["column"])
        shown = (text.splitlines() or [""])[max(0, number - 1) :][:1] or [""]
        lines += [f"  {shown[0]}", "  " + " " * (column - 1) + "^" * max(1, int(position.get("length") or 1))]
    if error.get("expected"):
        lines.append(f"expected: {', '.join(map(str, error['expected']))}")
    return lines


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Rows as aligned text under their column names."""
    cells = [list(columns), *([cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def cell(value: object) -> str:
    """One value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
    return text if len(text) <= COLUMN_LIMIT else text[: COLUMN_LIMIT - 1] + "…"


def duration(ns: object) -> str:
    """A duration that JSON gives in ns, in the unit that reads best."""
    if ns is None:
        return "-"
    value = float(str(ns))
    for unit, size in UNITS_NS:
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} ns"


def plural(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
