"""Matches texts with a pattern in the process that trains: never in more time than text times pattern.

Python's `re` tries one way after the other: `(a|aa)*b` takes for ever on forty `a`, and a condition would hold up the
training. So `re` is used only for patterns that leave it few ways, which are the usual ones, and only with short texts:
`.*a.*b` tries half a thousand million ways on 32 KiB of `a`. The others follow all ways at once, remembering what each
letter led to, as far as that takes little memory.
"""

import functools
import re
from collections.abc import Callable

from rankscope.tql.errors import NOWHERE
from rankscope.tql.patterns import Choice, Letters, Pattern, Repeat, Sequence, read

_FEW_WAYS = 2
_MOST_TRIED = 512
"""Letters of a text with which few ways are still soon tried: 0.1 ms for `.*a.*b`."""

_MOST_REMEMBERED = 50_000
"""Places that are remembered behind letters, some 100 bytes each: a pattern as `(a|b)*a(a|b){400}` has 2^400 sets."""
_ACCEPT = 0


@functools.lru_cache(maxsize=256)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether the whole of a text matches.

    Args:
        pattern: As `patterns.rewritten` returns it.
    """
    parts = read(pattern, place=NOWHERE)
    ways = _ways(parts)
    if ways > _FEW_WAYS or _repeats_groups(parts):
        return _AllWays(parts).matches
    fullmatch = re.compile(pattern, re.DOTALL).fullmatch
    if ways <= 1:
        return lambda text: fullmatch(text) is not None
    follow = _AllWays(parts)
    return lambda text: follow.matches(text) if len(text) > _MOST_TRIED else fullmatch(text) is not None


def _ways(pattern: Pattern) -> int:
    """Places where there is more than one way on."""
    match pattern:
        case Letters():
            return 0
        case Repeat():
            return _ways(pattern.part) * max(1, pattern.most or 1) + (pattern.least != pattern.most)
        case Choice():
            return 1 + sum(_ways(part) for part in pattern.parts)
        case Sequence():
            return sum(_ways(part) for part in pattern.parts)


def _repeats_groups(pattern: Pattern) -> bool:
    """Whether something longer than a letter is repeated, with more than one way to do it."""
    match pattern:
        case Letters():
            return False
        case Repeat():
            return pattern.least != pattern.most and not isinstance(pattern.part, Letters)
        case _:
            return any(_repeats_groups(part) for part in pattern.parts)


class _AllWays:
    """Follows all ways of a pattern at once.

    A place is a number: of a letter to come and the place behind it, or of places that follow without a letter.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._letters: dict[int, tuple[Letters, int]] = {}
        self._onward: dict[int, tuple[int, ...]] = {}
        self._places = 1
        self._begin = self._reached({self._laid(pattern, _ACCEPT)})
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._remembered = 0

    def matches(self, text: str) -> bool:
        """Whether the whole of the text matches."""
        places = self._begin
        for letter in text:
            places = self._known.get((places, letter)) or self._after(places, letter)
            if not places:
                return False
        return _ACCEPT in places

    def _after(self, places: frozenset[int], letter: str) -> frozenset[int]:
        code = ord(letter)
        waiting = (self._letters[place] for place in places if place != _ACCEPT)
        found = {onward for letters, onward in waiting if _has(letters, code)}
        reached = self._reached(found)
        if self._remembered > _MOST_REMEMBERED:
            self._known.clear()
            self._remembered = 0
        self._known[places, letter] = reached
        self._remembered += len(places) + 1
        return reached

    def _reached(self, places: set[int]) -> frozenset[int]:
        """The places, and all that follow from them without a letter, but only those that wait for one or accept."""
        found, waiting = set[int](), list(places)
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                waiting += self._onward.get(place, ())
        return frozenset(place for place in found if place in self._letters or place == _ACCEPT)

    def _new(self) -> int:
        self._places += 1
        return self._places

    def _laid(self, pattern: Pattern, behind: int) -> int:
        """The place where a pattern begins that ends at the place behind."""
        place = self._new()
        match pattern:
            case Letters():
                self._letters[place] = pattern, behind
            case Sequence():
                for part in reversed(pattern.parts):
                    behind = self._laid(part, behind)
                return behind
            case Choice():
                self._onward[place] = tuple(self._laid(part, behind) for part in pattern.parts)
            case Repeat():
                return self._laid_often(pattern, behind)
        return place

    def _laid_often(self, pattern: Repeat, behind: int) -> int:
        if pattern.most is None:
            loop = self._new()
            self._onward[loop] = (self._laid(pattern.part, loop), behind)
            start = loop
        else:
            start = behind
            for _ in range(pattern.most - pattern.least):
                option = self._new()
                self._onward[option] = (self._laid(pattern.part, start), behind)
                start = option
        for _ in range(pattern.least):
            start = self._laid(pattern.part, start)
        return start


def _has(letters: Letters, code: int) -> bool:
    return any(low <= code <= high for low, high in letters.ranges) is not letters.is_opposite
