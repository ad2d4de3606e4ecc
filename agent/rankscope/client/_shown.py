"""Text as a terminal shows it: nothing in it is obeyed, and its width is known.

Names come from whoever sent a span. They may hold what a terminal obeys, and letters that take two columns or none.
"""

import re
import unicodedata

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys instead of showing: controls (ESC and the one-byte CSI and OSC among them), line and
paragraph separators, what turns the direction of writing; and lone surrogates, which no terminal takes."""

_WITHOUT_WIDTH = frozenset({"Mn", "Me", "Cf"})
"""Categories of what is drawn into the letter before it, or not at all."""


def printable(text: str) -> str:
    r"""One line that a terminal shows and does not obey.

    Each such character becomes its JSON escape, as \u001b, which in a JSON document means the same.
    """
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def width_of(text: str) -> int:
    """Columns of a terminal that a text takes: two for a wide letter, none for an accent that stands by itself."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(letter: str) -> int:
    if unicodedata.category(letter) in _WITHOUT_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The text, or as much of its beginning as fits into so many columns, with an ellipsis."""
    if width_of(text) <= width:
        return text
    taken = 1
    for at, letter in enumerate(text):
        taken += _width(letter)
        if taken > width:
            return text[:at] + "…"
    return text


def padded(text: str, width: int) -> str:
    """The text with blanks behind it, as many as it takes to be that wide."""
    return text + " " * (width - width_of(text))
