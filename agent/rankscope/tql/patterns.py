r"""Patterns of `=~`: the part of regular expressions that RE2 and Python's `re` read alike, rewritten so that they do.

A pattern matches the whole of a text. It may hold letters, `.` (any letter, a line break too), classes as `[a-z]` and
`[^a-z]`, `\d \w \s` (of ASCII) and their opposites, groups, `|`, and the repeats `* + ? {n} {n,} {n,m}`. Anything
else is refused by name. What `rewritten` returns has explicit classes in place of `\d`, `\w` and `\s`, because the
engines differ in them (RE2's `\s` lacks the vertical tab), and a backslash before each sign that could mean something.
"""

import dataclasses
import re

from rankscope.tql.errors import Place, TqlTypeError

MOST_REPEATS = 1000
"""Repeats of a part, those around it multiplied: RE2 takes no more."""

MOST_PARTS = 1000
"""Letters, classes and empty parts of a pattern, each as often as it is repeated."""

MOST_GROUPS = 16
"""Groups within groups."""

_ALL = ((0, 0x10FFFF),)
_CLASSES = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)),
}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_REPEAT = re.compile(r"\*|\+|\?|\{(\d{1,4})(,?)(\d{0,4})\}")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})")
_PLAIN = re.compile(r"[0-9A-Za-z_ \u0080-\U0010ffff]")

Ranges = tuple[tuple[int, int], ...]
"""Stretches of code points, both ends included."""


@dataclasses.dataclass(frozen=True, slots=True)
class Letters:
    """One letter of these, or, opposite, of all others."""

    ranges: Ranges
    is_opposite: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple["Pattern", ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Any of these."""

    parts: tuple["Pattern", ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """A part so many times in a row; `most` None: without end."""

    part: "Pattern"
    least: int
    most: int | None


Pattern = Letters | Sequence | Choice | Repeat
"""What a pattern says."""


def rewritten(text: str, *, place: Place) -> str:
    """The pattern as both engines read it.

    Args:
        text: As written.
        place: Where the string stands.

    Raises:
        TqlTypeError: It holds something that the two engines do not read alike, or is no pattern.
    """
    return written(read(text, place=place))


def read(text: str, *, place: Place) -> Pattern:
    """What a pattern says.

    Args:
        text: As written.
        place: Where the string stands.

    Raises:
        TqlTypeError: It holds something that the two engines do not read alike, or is no pattern.
    """
    reader = _Reader(text, place)
    pattern = reader.choice()
    if reader.at < len(text):
        raise reader.refusal("a ) that closes nothing", hint=r"write \) for the sign itself")
    _refuse_costly(pattern, reader)
    return pattern


class _Reader:
    """Reads a pattern from the left; each method reads one rule and stands behind it."""

    def __init__(self, text: str, place: Place) -> None:
        self.text, self.at, self._place, self._depth = text, 0, place, 0

    def refusal(self, what: str, *, hint: str) -> TqlTypeError:
        """The error of something at the reader's position; it points there, or, behind escapes, to the string."""
        message = f"the pattern has {what} at its character {self.at + 1}"
        return TqlTypeError("bad_pattern", message, place=self._here(), hint=hint)

    def _here(self) -> Place:
        whole, offset = self._place, self.at + 1
        if whole.end - whole.start != len(self.text) + 2 or "\n" in self.text:
            return whole
        return Place(whole.start + offset, whole.start + offset + 1, whole.line, whole.column + offset)

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _took(self, wanted: str) -> bool:
        found = self.text.startswith(wanted, self.at)
        self.at += len(wanted) if found else 0
        return found

    def choice(self) -> Pattern:
        """`a|b`."""
        parts = [self._sequence()]
        while self._took("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Pattern:
        parts: list[Pattern] = []
        while self._next() not in {"", "|", ")"}:
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self) -> Pattern:
        sign = self._next()
        if sign == "(":
            return self._group()
        if sign == "[":
            self.at += 1
            return self._class()
        if sign in "^$":
            hint = "leave it out: a pattern is matched with the whole text; put .* where anything may stand"
            raise self.refusal(f"the anchor {sign}", hint=hint)
        if sign == "{" and self.at:
            raise self.refusal("a { that is no repeat", hint=r"write {2}, {2,} or {2,5}, or \{ for the sign itself")
        if sign in "*+?{}]":
            raise self.refusal(f"a {sign} with nothing to apply to", hint=f"write \\{sign} for the sign itself")
        self.at += 1
        if sign == "\\":
            return self._escape()
        return Letters(_ALL) if sign == "." else _letter(sign)

    def _group(self) -> Pattern:
        if self.text.startswith("(?", self.at) and not self.text.startswith("(?:", self.at):
            hint = "group with ( ) or (?: ); no flags, names, or looking around"
            raise self.refusal("a special group", hint=hint)
        self._depth += 1
        if self._depth > MOST_GROUPS:
            raise self.refusal(f"more than {MOST_GROUPS} groups within one another", hint="write a flatter pattern")
        start, self.at = self.at, self.at + (3 if self._next() and self.text.startswith("(?:", self.at) else 1)
        inner = self.choice()
        if not self._took(")"):
            self.at = start
            raise self.refusal("a ( that is not closed", hint=r"write ) at its end, or \( for the sign itself")
        self._depth -= 1
        return inner

    def _escape(self) -> Letters:
        """What stands behind a backslash."""
        letter = self._next()
        if letter.lower() in _CLASSES and letter:
            self.at += 1
            return Letters(_CLASSES[letter.lower()], letter.isupper())
        return _letter(self._escaped_letter())

    def _escaped_letter(self) -> str:
        letter = self._next()
        if found := _HEX.match(self.text, self.at):
            self.at = found.end()
            return chr(int(found[1], 16))
        if letter in _CONTROLS and letter:
            self.at += 1
            return _CONTROLS[letter]
        if not letter or letter.isalnum() or not letter.isascii() or letter == "_":
            self.at -= 1
            hint = r"there are \d \w \s \D \W \S \n \t \r \f \v \xHH, and a backslash before a sign"
            raise self.refusal(f"the unknown escape \\{letter}", hint=hint)
        self.at += 1
        return letter

    def _class(self) -> Letters:
        is_opposite = self._took("^")
        ranges: list[tuple[int, int]] = []
        while not self._took("]"):
            ranges += self._member(is_first=not ranges)
        if not ranges:
            self.at -= 1
            raise self.refusal("a class of no letters", hint=r"write \] for the sign itself")
        return Letters(tuple(sorted(ranges)), is_opposite)

    def _member(self, *, is_first: bool) -> Ranges:
        r"""A letter, a range, or a class as `\d`."""
        if self._next() in {"", "["}:
            hint = r"close the class with ], or write \[ for the sign itself"
            raise self.refusal("a class that is not closed" if not self._next() else "a [ in a class", hint=hint)
        if self._next() == "-" and not is_first and not self.text.startswith("-]", self.at):
            raise self.refusal("a - that joins nothing", hint=r"write \- for the sign itself")
        low = self._class_letter()
        if isinstance(low, Letters):
            return low.ranges
        if self._next() != "-" or self.text.startswith("-]", self.at):
            return ((ord(low), ord(low)),)
        self.at += 1
        high = self._class_letter() if self._next() else ""
        if isinstance(high, Letters) or not high or high < low:
            raise self.refusal("a range that is none", hint="write its lesser letter first, as in [a-z]")
        return ((ord(low), ord(high)),)

    def _class_letter(self) -> str | Letters:
        if not self._took("\\"):
            self.at += 1
            return self.text[self.at - 1]
        if self._next() and self._next() in "DWS":
            hint = "write the letters themselves, or ask for the opposite of the whole class, as in [^0-9]"
            raise self.refusal("an opposite in a class", hint=hint)
        found = self._escape()
        return chr(found.ranges[0][0]) if found.ranges[0][0] == found.ranges[-1][1] else found

    def _repeated(self, part: Pattern) -> Pattern:
        found = _REPEAT.match(self.text, self.at)
        if found is None:
            return part
        least, most = _bounds(found)
        if (most is not None and (most < least or most > MOST_REPEATS)) or least > MOST_REPEATS:
            raise self.refusal(f"the repeat {found[0]}", hint=f"write the lesser number first, up to {MOST_REPEATS}")
        self.at = found.end()
        self._took("?")
        if self._next() and self._next() in "*+?{":
            raise self.refusal("a repeat of a repeat", hint="put what is to be repeated in parentheses")
        return Repeat(part, least, most)


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    if found[0] in "*+?":
        return (1 if found[0] == "+" else 0), (1 if found[0] == "?" else None)
    least = int(found[1])
    if not found[2]:
        return least, least
    return least, int(found[3]) if found[3] else None


def _letter(letter: str) -> Letters:
    return Letters(((ord(letter), ord(letter)),))


def _refuse_costly(pattern: Pattern, reader: _Reader) -> None:
    if _size(pattern) > MOST_PARTS:
        reader.at = 0
        message = f"more than {MOST_PARTS} parts, repeats counted, which begin"
        raise reader.refusal(message, hint="repeat less, or match a shorter part")
    if _repeats(pattern) > MOST_REPEATS:
        reader.at = 0
        message = f"a part that is repeated more than {MOST_REPEATS} times, in a pattern that begins"
        raise reader.refusal(message, hint="repeat less")


def _size(pattern: Pattern) -> int:
    match pattern:
        case Letters():
            return 1
        case Repeat():
            return _size(pattern.part) * max(pattern.least, pattern.most or 1, 1)
        case _:
            # Also what is empty is a place to be: `(){1000}` a thousand times over would be a million of them.
            return max(1, sum(_size(part) for part in pattern.parts))


def _repeats(pattern: Pattern) -> int:
    """The most times that a part is repeated by numbers."""
    match pattern:
        case Letters():
            return 1
        case Repeat():
            return _repeats(pattern.part) * max(pattern.least, pattern.most or 1, 1)
        case _:
            return max((_repeats(part) for part in pattern.parts), default=1)


def written(pattern: Pattern) -> str:
    """The pattern as text that both engines read alike, with `.` matching every letter."""
    match pattern:
        case Letters():
            return _letters(pattern)
        case Sequence():
            return "".join(
                f"(?:{written(part)})" if isinstance(part, Choice) else written(part) for part in pattern.parts
            )
        case Choice():
            return "|".join(written(part) for part in pattern.parts)
        case Repeat():
            inner = written(pattern.part)
            part = inner if isinstance(pattern.part, Letters) else f"(?:{inner})"
            return part + _repeat(pattern.least, pattern.most)


def _repeat(least: int, most: int | None) -> str:
    signs: dict[tuple[int, int | None], str] = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return signs.get((least, most)) or (
        f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
    )


def _letters(letters: Letters) -> str:
    if letters.ranges == _ALL:
        return "."
    low, high = letters.ranges[0]
    if len(letters.ranges) == 1 and low == high and not letters.is_opposite:
        return _escaped(low)
    inner = "".join(_escaped(a) if a == b else f"{_escaped(a)}-{_escaped(b)}" for a, b in letters.ranges)
    return f"[{'^' if letters.is_opposite else ''}{inner}]"


def _escaped(code: int) -> str:
    letter = chr(code)
    if _PLAIN.fullmatch(letter):
        return letter
    return f"\\{letter}" if letter.isprintable() else f"\\x{code:02x}"
