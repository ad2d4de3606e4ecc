"""Errors of a query: they say where in the text, what was expected, and what to write instead.

RankscopeError > TqlError > TqlSyntaxError   the text is not a query, or is beyond a limit
                          > TqlTypeError     a query, but its fields, types, units or ranges do not fit
                          > TqlUnsupported   part of the language, not answered by this version
"""

from dataclasses import dataclass
from typing import ClassVar

from rankscope._root_error import RankscopeError


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of the query's text.

    Attributes:
        start: Offset of its first character, 0-based, in code points.
        end: Offset after its last character.
        line: Line of the first character, 1-based.
        column: Column of the first character in its line, 1-based, in code points.
    """

    start: int = 0
    end: int = 0
    line: int = 1
    column: int = 1

    @property
    def length(self) -> int:
        """Number of characters, at least 1: a caret needs something to stand under."""
        return max(1, self.end - self.start)

    def until(self, other: "Place") -> "Place":
        """From the start of this one to the end of the other."""
        return Place(self.start, max(self.end, other.end), self.line, self.column)


NOWHERE = Place()
"""The place of a node that was built by hand."""

_LONGEST_MESSAGE = 300
_LINE_SHOWN = 160
_SHOWN_BEFORE = 60


def _shortened(text: str) -> str:
    """A message that quotes a value of any length, at a length that can be read."""
    half = _LONGEST_MESSAGE // 2
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:half]} … {text[-half:]}"


def _around(line: str, column: int) -> tuple[str, int]:
    """What is shown of a line of any length, and the column (1-based) in that."""
    if len(line) <= _LINE_SHOWN:
        return line, column
    start = max(0, min(column - 1 - _SHOWN_BEFORE, len(line) - _LINE_SHOWN))
    before, after = "…" if start else "", "…" if start + _LINE_SHOWN < len(line) else ""
    return f"{before}{line[start : start + _LINE_SHOWN]}{after}", column - start + len(before)


class TqlError(RankscopeError):
    """A query that cannot be answered.

    Attributes:
        code: Stable word for programs, such as `unknown_field`.
        message: What is wrong, with the value it is about.
        line: Line of the place, 1-based.
        column: Column of the place, 1-based, in code points.
        length: Length of the place in code points, at least 1.
        expected: What could stand there, in words; may be empty.
        hint: What to write instead; where nothing special is known, what helps with errors of this kind.
    """

    advice: ClassVar[str] = "write it otherwise"

    def __init__(
        self, code: str, message: str, *, place: Place = NOWHERE, expected: tuple[str, ...] = (), hint: str = ""
    ) -> None:
        self.message = _shortened(message)
        super().__init__(self.message)
        self.code = code
        self.line = place.line
        self.column = place.column
        self.length = place.length
        self.expected = expected
        self.hint = _shortened(hint) or ("write what is expected there" if expected else self.advice)

    def __str__(self) -> str:
        """Message, place and hint in one line; `render` shows it under the text."""
        return f"{self.message} (line {self.line}, column {self.column}); {self.hint}"

    def render(self, text: str) -> str:
        """The error under the line of the query that it is about, with a caret; always printable as UTF-8.

        Args:
            text: The query as it was given.
        """
        lines = text.split("\n")
        shown, column = _around(lines[self.line - 1] if self.line <= len(lines) else "", self.column)
        before = "".join(letter if letter == "\t" else " " for letter in shown[: column - 1])
        carets = "^" * max(1, min(self.length, len(shown) - column + 1))
        parts = [self.message, f"  {shown}", f"  {before}{carets}"]
        if self.expected:
            parts.append(f"expected: {', '.join(self.expected)}")
        parts.append(f"hint: {self.hint}")
        return "\n".join(parts).encode(errors="replace").decode()


class TqlSyntaxError(TqlError):
    """The text is not a query, or is beyond a limit on its size."""

    advice = "write a shorter and simpler query"


class TqlTypeError(TqlError):
    """A query whose fields, types, units or ranges do not fit."""

    advice = "name a field or a value that fits there"


class TqlUnsupported(TqlError):  # noqa: N818 -- not a fault of the query
    """Part of the language, but not answered by this version."""

    advice = "leave it out and sort the rows that come by hand"
