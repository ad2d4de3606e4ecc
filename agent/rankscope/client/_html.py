"""What a notebook shows: every value escaped, for names and texts come from whoever sent a span."""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

ROWS = 50
"""Rows of a table that is shown; the result has all of them."""

WIDTH = 200
"""Characters of a cell that are shown."""


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, notes: Iterable[str]) -> str:
    """Rows as an HTML table, and remarks below it."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = ("".join(f"<td>{_cell(row.get(name))}</td>" for name in columns) for row in rows[:ROWS])
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{remarks(notes)}"


def remarks(notes: Iterable[str]) -> str:
    """Remarks as a paragraph each."""
    return "".join(f"<p>{escape(note)}</p>" for note in notes)


def preformatted(lines: Iterable[str]) -> str:
    """Lines of text as they are."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
    return escape(text if len(text) <= WIDTH else text[: WIDTH - 1] + "…")
