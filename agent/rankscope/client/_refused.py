"""A query that the service refused, shown with the place in its text."""

from collections.abc import Mapping
from typing import Any

from rankscope.client._shown import printable, width_of
from rankscope.up import RefusedError, UpError

BEFORE, AFTER = 40, 36
"""Characters that are shown of a long line before the place of an error and from there on: a terminal of 80 columns
wraps what is longer, and the caret stands below nothing."""


class QueryRefusedError(UpError):
    """The query service refused a query; as text it has the line, a caret below the place, and what to do.

    Attributes:
        error: the answer: code, message, hint, position, expected.
        status: the HTTP status.
        text: the query.
    """

    def __init__(self, refused: RefusedError, text: str) -> None:
        super().__init__(refused.message)
        self.hint = refused.hint  # not above: it stands in the text already, and would stand there twice
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
        lines += _pointed_at(text, position)
    if error.get("expected"):
        lines.append(f"expected: {', '.join(map(str, error['expected']))}")
    return lines


def _pointed_at(text: str, position: Mapping[str, Any]) -> list[str]:
    lines = text.split("\n")  # as the language counts them: splitlines() would also part at U+2028 and the like
    line = lines[min(int(position["line"]), len(lines)) - 1].removesuffix("\r")
    begin = int(position["column"]) - 1
    before, at = line[:begin], line[begin:]
    marked = at[: max(1, int(position.get("length") or 1))]
    if len(line) > BEFORE + AFTER:
        before = before if len(before) <= BEFORE else "…" + before[-BEFORE:]
        at = at if len(at) <= AFTER else at[:AFTER] + "…"
        marked = marked[:AFTER]
    mark = "^" * (width_of(printable(marked)) or 1)
    return [f"  {printable(before + at)}", f"  {' ' * width_of(printable(before))}{mark}"]
