"""Where in a text a secret may begin: the marks of all shapes, looked for at the speed of a plain search.

Nearly every text has no secret, so what counts is how fast that is seen. Python's `re` tries an alternation of many
words character by character (4 KiB of prose: 120 µs); a pattern that begins with one literal character is searched
for that character first (2 to 4 µs). So the marks are grouped by a character that is rare in text and in all of
them (a gate), what stands before it is a look-behind, and where the character is missing the gate costs 50 ns.
A text without any mark has no secret, and neither has any part of it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankscope.privacy import shapes
from rankscope.privacy.assigned import Assignments
from rankscope.privacy.names import Names
from rankscope.privacy.shapes import Finder

_ASSIGNED = r"[\w-]{0,32}+(?:\\?[\"']?\]?\s{0,4}+[:=>]|\\?[\"']\s{0,4}+,\s{0,4}+\\?[\"']|\s\S{20})"
"""After the telling part of a name: the rest of it and what assigns, or something long."""


Place = tuple[int, Finder]


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


class Marks:
    """The marks of every shape, and of the names of secrets.

    Args:
        names: Which names are names of secrets.
    """

    def __init__(self, names: Names) -> None:
        grouped: dict[str, list[Mark]] = {}
        for mark in _marks(names):
            grouped.setdefault(mark.gate, []).append(mark)
        self._gates = [(gate, _gate(gate, marks).search, marks) for gate, marks in grouped.items()]

    def any(self, text: str) -> bool:
        """Whether the text has a mark: without one it has no secret."""
        lowered = text.lower()
        for gate, search, _ in self._gates:  # noqa: SIM110  # `any` over a generator takes 1 µs more
            if gate in lowered and search(lowered):
                return True
        return False

    def places(self, text: str) -> list[Place]:
        """Where marks begin, in order, each with what finds its secret."""
        lowered = text.lower()
        if len(lowered) != len(text):
            lowered = _ascii_lowered(text)
        places: list[Place] = []
        for gate, search, marks in self._gates:
            if gate in lowered:
                found = search(lowered)
                while found is not None:
                    mark = marks[(found.lastindex or 1) - 1]
                    places.append((found.start() - mark.width, mark.finder))
                    found = search(lowered, found.end())
        places.sort(key=_start)
        return places


def _gate(gate: str, marks: Sequence[Mark]) -> re.Pattern[str]:
    """The gate with what its marks have around it; the group that took part tells which mark it is."""
    own = re.escape(gate)
    ways = (f"{f'(?<={mark.before}{own})' if mark.before else ''}(?={mark.after})()" for mark in marks)
    return re.compile(f"{own}(?:{'|'.join(ways)})")


def _start(place: Place) -> int:
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
    yield Mark("asi", shapes.AWS, after="a[a-z0-9]{12}")
    yield Mark("asi", shapes.BASIC, "b", 1, r"c \s{0,3}[a-z0-9+/]{8}")
    yield Mark("k", shapes.HOOK_ADDRESS, "hooks.slac".replace(".", r"\."), 10, r"\.com/")
    yield Mark("j", shapes.JWT, "ey", 2, r"[\w-]{6}")
    yield Mark("j", assigned, after=f"wt{_ASSIGNED}")
    yield Mark("z", shapes.GOOGLE, "ai", 2, r"a[\w-]{30}")
    yield from _underscored()
    yield from _hyphened()
    yield Mark("-", shapes.curl_user, r"\s", 0, r"u[^-]")
    yield Mark("-", shapes.curl_user, "-", 1, "user[ =]")
    yield Mark("-", option, "-", 1, r"[a-z][\w-]{1,40}+\s{1,4}+[^-\s]")
    yield Mark("/", shapes.userinfo, ":/", 2, r"[^\s\"'<>@]{1,512}+@")
    yield Mark("/", shapes.DISCORD_ADDRESS, "webhooks", 8, r"\d{12}")
    yield Mark("pwd", assigned, after="(?:=|[\"']?:)")
    yield Mark("cre", assigned, "se", 2, f"t{_ASSIGNED}")
    yield Mark("cre", assigned, after=f"dential{_ASSIGNED}")
    yield Mark("pass", assigned, after=_ASSIGNED)
    yield Mark("auth", assigned, after=_ASSIGNED)
    yield Mark("bearer", shapes.bearer, after=r"[\s:=%\\]")
    yield Mark("bearer", assigned, after=_ASSIGNED)
    yield Mark("9", shapes.GOOGLE_ACCESS, "ya2", 3, r"\.[\w-]{16}")
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
    yield Mark("_", shapes.URLSAFE_AFTER_UNDERSCORE, "(?:glsa|figd)", 4, r"[\w-]{20}")
    yield Mark("_", shapes.SENTRY, "sntrys", 6, r"[\w+/=-]{20}")
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
