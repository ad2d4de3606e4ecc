"""A query that the service refused, shown with the place in its text; and text made safe to show."""

import re
from collections.abc import Mapping
from typing import Any

from rankscope.up import RefusedError, UpError

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys instead of showing: controls (ESC and the one-byte CSI and OSC among them), line and
paragraph separators, what turns the direction of writing; and lone surrogates, which no terminal takes."""


class QueryRefusedError(UpError):
    """The query service refused a query; as text it has the line, a caret below the place, and what to do.

    Attributes:
        error: the answer: code, message, hint, position, expected.
        status: the HTTP status.
        text: the query.
    """

    def __init__(self, refused: RefusedError, text: str) -> None:
        super().__init__(refused.message, hint=refused.hint)
        self.code = refused.code
        self.error = refused.error
        self.status = refused.status
        self.text = text

    def __str__(self) -> str:
        """The message, the place and the hint, a line each."""
        hint = [f"hint: {self.hint}"] if self.hint else []
        return "\n".join([self.message, *caret(self.text, self.error), *hint])


def caret(text: str, error: Mapping[str, Any]) -> list[str]:
    """The line of a query that an error points at, the place below it, and what would have been right there."""
    lines: list[str] = []
    position = error.get("position")
    if position:
        number, column = int(position["line"]), int(position["column"])
        shown = (text.splitlines() or [""])[max(0, number - 1) :][:1] or [""]
        before, at = shown[0][: column - 1], shown[0][column - 1 :]
        width = len(printable(at[: max(1, int(position.get("length") or 1))])) or 1
        lines += [f"  {printable(shown[0])}", "  " + " " * len(printable(before)) + "^" * width]
    if error.get("expected"):
        lines.append(f"expected: {', '.join(map(str, error['expected']))}")
    return lines


def printable(text: str) -> str:
    r"""One line that a terminal shows and does not obey: names come from whoever sent a span.

    Each such character becomes its JSON escape, as \u001b, which in a JSON document means the same.
    """
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
