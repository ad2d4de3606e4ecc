"""Where in a text a secret may begin: the marks of all shapes, looked for at the speed of a plain search.

Nearly every text has no secret, so what counts is how fast that is seen. Python's `re` tries an alternation of many
words character by character (4 KiB of prose: 120 µs); a pattern that begins with one literal character is searched
for that character first (2 to 4 µs). So the marks are grouped by a character that is rare in text and in all of
them (a gate), what stands before it is a look-behind, and where the character is missing the gate costs 50 ns.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankscope.privacy import shapes
from rankscope.privacy.assigned import Assignments
from rankscope.privacy.names import Names
from rankscope.privacy.shapes import Finder

_ASSIGNED = r"[\w-]{0,32}+\\?[\"']?\]?\s{0,4}+[:=>,]"
"""After the telling part of a name: the rest of it, and what assigns."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One beginning of a secret, in lower case.

    Attributes:
        gate: The text that is searched for.
        finder: Says where the secret lies.
        before: Pattern of what stands before the gate, of fixed width.
        width: Its characters.
        after: Pattern of what follows.
    """

    gate: str
    finder: Finder
    before: str = ""
    width: int = 0
    after: str = ""


class Gate:
    """All marks with one gate."""

    __slots__ = ("_finders", "pattern", "text")

    def __init__(self, text: str, marks: Sequence[Mark]) -> None:
        self.text = text
        ways = "|".join(
            f"{f'(?<={mark.before}{re.escape(text)})' if mark.before else ''}(?={mark.after})()" for mark in marks
        )
        self.pattern = re.compile(f"{re.escape(text)}(?:{ways})")
        self._finders = [(mark.finder, mark.width) for mark in marks]

    def places(self, lowered: str) -> Iterator[tuple[int, Finder]]:
        """Where marks begin, each with what finds its secret."""
        for found in self.pattern.finditer(lowered):
            finder, width = self._finders[(found.lastindex or 1) - 1]
            yield found.start() - width, finder


class Marks:
    """The marks of every shape, and of the names of secrets.

    Args:
        names: Which names are names of secrets.
    """

    def __init__(self, names: Names) -> None:
        grouped: dict[str, list[Mark]] = {}
        for mark in _marks(names):
            grouped.setdefault(mark.gate, []).append(mark)
        self._gates = [Gate(text, marks) for text, marks in grouped.items()]
        self._searches = [(gate.text, gate.pattern.search) for gate in self._gates]

    def lowered(self, text: str) -> str | None:
        """The text as its places are searched in, None where it has no mark: then it has no secret."""
        lowered = text.replace("ASIA", "AKIA").lower()
        for gate, search in self._searches:
            if gate in lowered and search(lowered):
                return lowered if len(lowered) == len(text) else _ascii_lowered(text)
        return None

    def places(self, lowered: str) -> list[tuple[int, Finder]]:
        """Where marks begin, in order."""
        found = [place for gate in self._gates for place in gate.places(lowered)]
        found.sort(key=_start)
        return found


def _start(place: tuple[int, Finder]) -> int:
    return place[0]


def _ascii_lowered(text: str) -> str:
    """Lower case letter by letter: a few letters (`İ`) become two characters in `lower`."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def _marks(names: Names) -> Iterator[Mark]:
    assignments = Assignments(names)
    assigned, option = assignments.assigned, assignments.option
    yield Mark("k", assigned, "to", 2, f"en{_ASSIGNED}")
    yield Mark("k", assigned, after=f"ey{_ASSIGNED}")
    yield Mark("k", assigned, "coo", 3, f"ie{_ASSIGNED}")
    yield Mark("k", shapes.AWS, "a", 1, "ia[a-z0-9]{12}")
    yield Mark("k", shapes.HOOK_ADDRESS, "hooks.slac".replace(".", r"\."), 10, r"\.com/")
    yield Mark("j", shapes.JWT, "ey", 2, r"[\w-]{6}")
    yield Mark("j", assigned, after=f"wt{_ASSIGNED}")
    yield Mark("z", shapes.GOOGLE, "ai", 2, r"a[\w-]{30}")
    yield from _underscored()
    yield from _hyphened()
    yield Mark("-", shapes.curl_user, r"\s", 0, r"u\s")
    yield Mark("-", shapes.curl_user, "-", 1, "user[ =]")
    yield Mark("-", option, "-", 1, r"[a-z][\w-]{1,40}+\s{1,4}+[^-\s]")
    yield Mark("/", shapes.userinfo, ":/", 2, r"[^\s\"'<>@]{1,512}+@")
    yield Mark("/", shapes.DISCORD_ADDRESS, "webhooks", 8, r"\d{12}")
    for stem in ("secret", "pass", "pwd", "auth", "credential"):
        yield Mark(stem, assigned, after=_ASSIGNED)
    yield Mark("bearer", assigned, after=_ASSIGNED)
    yield Mark("bearer", shapes.BEARER, after=r"[\s:=%\\]")
    yield Mark("basic ", shapes.BASIC, after=r"\s{0,3}[a-z0-9+/]{8}")
    yield Mark("ya29.", shapes.GOOGLE_ACCESS)
    for own in names.extra:
        yield Mark(own.rpartition("_")[2], assigned, after=_ASSIGNED)


def _underscored() -> Iterator[Mark]:
    """Tokens with an underscore after their issuer."""
    yield Mark("_", shapes.GITHUB, "gh[pousr]", 3, r"\w{16}")
    yield Mark("_", shapes.HUGGING_FACE, "hf", 2, "[a-z0-9]{16}")
    yield Mark("_", shapes.STRIPE, "[spr]k_(?:live|test)", 7, "[a-z0-9]{8}")
    yield Mark("_", shapes.OWN, "rsk", 3, "[0-9a-f]{8}_")
    yield Mark("_", shapes.WEBHOOK, "whsec", 5)
    yield Mark("_", shapes.INSTANTML, "instantml", 9)
    yield Mark("_", shapes.GITHUB_PAT, "github_pat", 10)
    yield Mark("_", shapes.ALNUM_AFTER_UNDERSCORE, "(?:gsk|npm)", 3, r"\w{20}")
    yield Mark("_", shapes.LANGSMITH, "lsv2", 4)


def _hyphened() -> Iterator[Mark]:
    """Tokens with a hyphen after their issuer."""
    yield Mark("-", shapes.PRIVATE_KEY, "----", 4, "begin [a-z0-9 ]{0,24}private")
    yield Mark("-", shapes.SK, "sk", 2, r"[\w-]{8}")
    yield Mark("-", shapes.SLACK, "xox[a-z]", 4, r"[\w-]{10}")
    yield Mark("-", shapes.SLACK_APP, "xapp", 4, r"[\w-]{10}")
    yield Mark("-", shapes.GITLAB, "gl(?:pat|ptt|cbt|imt)", 5, r"[\w-]{16}")
    yield Mark("-", shapes.PYPI, "pypi", 4, r"[\w-]{16}")
    yield Mark("-", shapes.NVIDIA, "nvapi", 5, r"[\w-]{16}")
    yield Mark("-", shapes.GOOGLE_CLIENT, "gocspx", 6, r"[\w-]{16}")
