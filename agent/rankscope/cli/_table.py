"""Rows as aligned text. On a terminal a table is as wide as that and no wider: a line that wraps is no row any more."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankscope.cli._output import say, say_aside
from rankscope.client import cut, padded, printable, width_of

CELL_WIDTH = 44
"""Wider cells are cut in tables; `--json` has all of them."""

BETWEEN = 2
"""Blanks between columns."""

NAMED = 5
"""Columns that are named of those there is no room for."""


def say_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, none: str = "no rows") -> None:
    """A table on stdout; on a terminal the columns it has room for, and on stderr which ones it has not.

    Args:
        rows: values by column.
        columns: the columns, the most important ones first.
        none: what is said where there are no rows.
    """
    if not rows:
        say(none)
        return
    cells = _cells(rows, columns)
    room = fitting(_widths(cells))
    for line in _lines([line[:room] for line in cells]):
        say(line)
    say_left_out(columns[room:])


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Rows as aligned text under their column names."""
    return _lines(_cells(rows, columns))


def fitting(widths: Sequence[int]) -> int:
    """How many columns of these widths, from the first, stdout has room for; at least one, all if it is no terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        return len(widths)
    room, taken = shutil.get_terminal_size().columns, 0
    for at, width in enumerate(widths):
        taken += width + (BETWEEN if at else 0)
        if taken > room:
            return max(at, 1)
    return len(widths)


def say_left_out(columns: Sequence[str]) -> None:
    """On stderr, which columns there was no room for."""
    if columns:
        more = f" and {len(columns) - NAMED} more" if len(columns) > NAMED else ""
        say_aside(f"no room for {', '.join(columns[:NAMED])}{more}; --json has every column")


def cell(value: object) -> str:
    """One value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
    return cut(printable(text), CELL_WIDTH)


def _cells(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[list[str]]:
    """The column names, then the rows."""
    head = [printable(column) for column in columns]
    return [head, *([cell(row.get(column)) for column in columns] for row in rows)]


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(width_of, column)) for column in zip(*cells, strict=True)]


def _lines(cells: Sequence[Sequence[str]]) -> list[str]:
    widths, between = _widths(cells), " " * BETWEEN
    return [between.join(map(padded, line, widths)).rstrip() for line in cells]
