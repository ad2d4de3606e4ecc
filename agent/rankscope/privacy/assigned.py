"""Secrets that are known by the name before them: `password=…`, `"api_key": "…"`, `--token …`, `Cookie: …`.

Promises: only a bounded part of the text before the name and of the space after it is looked at.
"""

import re
import string

from rankscope.privacy.names import NameKind, Names
from rankscope.privacy.shapes import Extent
from rankscope.privacy.values import is_secret_value

_REACH = 64
"""Characters of a name before its telling part."""

_TELLING = 256
"""Characters of a value without quotes that tell whether it is a secret: what is none may go on for a megabyte."""

_NAME_CHARACTERS = string.ascii_letters + string.digits + "_-"
_NAME_TAIL = re.compile(r"[\w-]*+")
_SPACED = re.compile(r"(?:api|access|secret|private|auth|signing|encryption)[ ]\Z", re.IGNORECASE)
"""`api key`, as people write it."""

_ANNOTATION = r":\s?[A-Za-z_][\w.]*+(?:\[[\w.\[\], |]{0,64}\])?(?:\s?\|\s?[\w.\[\]]{1,64}){0,4}\s=\s"
"""`: str | None = `, of a variable in Python."""

_ASSIGNMENT = re.compile(
    r"(?P<closing>(?:\\?[\"'])?\]?)\s{0,4}+"
    rf"(?P<sign>{_ANNOTATION}|:=|=>|==|[:=>,])\s{{0,8}}+"
    r"(?P<opening>[rbfuRBFU]{0,2}(?:\\?[\"'])|)"
)
_FOLLOWED = re.compile(r"\s(?P<value>[\w+/=.~-]{20,})(?=[\s\"',;)]|$)")
"""`aws configure set aws_secret_access_key …`: nothing assigns, but what follows is long and looks random."""

_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w-]*+)\s{1,4}(?P<opening>[\"']|)")

_QUOTED = {
    '"': re.compile(r'(?:[^"\\\n]|\\.)*+'),
    "'": re.compile(r"(?:[^'\\\n]|\\.)*+"),
    '\\"': re.compile(r'(?:[^"\\\n]|\\(?!"))*+'),
    "\\'": re.compile(r"(?:[^'\\\n]|\\(?!'))*+"),
}
_BARE = re.compile(r"(?:[^\s\"'<>&;,)\]}\\]|[,)\]}](?![\s,;:)\]}\"'\\]|$|[\w-]+[=:])|\\(?![nrt\"']))+")
_CREDENTIALS = re.compile(
    r"(?:(?:digest|aws4-hmac-sha256)\s[^\r\n]+|(?:(?:bearer|basic|token|api-?key|negotiate)\s+)?[^\s\"',;<>)\]}\\]+)",
    re.IGNORECASE,
)
_COOKIES = re.compile(r"[^\s;,\"'<>=]+=[^\s;\"'<>]+(?:;[ \t]*[^\s;\"'<>]+)*")
_PHRASE = re.compile(r"[^\r\n\"'<>,;]+")
_CHAINED = re.compile(r"[ \t]*=(?!=)")
"""After a value: it is a variable that is assigned itself."""

_PROSE_AFTER = re.compile(r"\s[a-z]+\b(?!\s*[=:])")
"""After a word: the sentence goes on."""


class Assignments:
    """Finds the value of a secret by the name before it.

    Args:
        names: Which names are names of secrets.
    """

    def __init__(self, names: Names) -> None:
        self._names = names

    def assigned(self, text: str, start: int) -> Extent | None:
        """Where the value lies that is assigned to the name around `start`, if it is a secret."""
        reach = max(0, start - _REACH)
        begin = reach + len(text[reach:start].rstrip(_NAME_CHARACTERS))
        after = _end(_NAME_TAIL, text, start=start)
        name = text[begin:after]
        kind = self._kind(text, begin, name=name)
        if kind is None:
            return None
        found = _ASSIGNMENT.match(text, after) or _FOLLOWED.match(text, after)
        if found is None:
            return None
        if found.re is _FOLLOWED:
            return _judged(text, found.span("value"), name=name, kind=kind, is_quoted=False, is_loose=True)
        if not _may_assign(found, before=text[begin - 1 : begin]):
            return None
        extent = _extent(text, found.end(), opening=found["opening"], kind=kind, name=name)
        sign = found["sign"]
        if extent is None or not (found["opening"] or _stands_alone(text, extent, sign=sign)):
            return None
        return _judged(text, extent, name=name, kind=kind, is_quoted=bool(found["opening"]), is_loose=sign == ",")

    def option(self, text: str, start: int) -> Extent | None:
        """Where the value of a command line option lies, if it is a secret; `start` is at its dashes."""
        found = _OPTION.match(text, start)
        kind = None if found is None else self._names.kind(found["name"])
        if found is None or kind is None:
            return None
        name = found["name"]
        extent = _extent(text, found.end(), opening=found["opening"], kind=kind, name=name)
        return _judged(text, extent, name=name, kind=kind, is_quoted=bool(found["opening"]), is_loose=False)

    def _kind(self, text: str, begin: int, *, name: str) -> NameKind | None:
        """The kind of a name where it stands: in an address `token` is no word, nor is `Pwd` a folder."""
        kind = self._names.kind(name)
        if kind is NameKind.VAGUE:
            return NameKind.SECRET if text[begin - 1 : begin] in ("?", "&") else kind
        if kind is not None:
            return kind
        if name.lower() == "pwd":
            return NameKind.PASSWORD  # a folder is told by its look
        if name.lower() not in ("key", "keys") or text[begin - 1 : begin] != " ":
            return None
        before = _SPACED.search(text, max(0, begin - _REACH), begin)
        return None if before is None else self._names.kind(text[before.start() : begin] + name)


def _end(pattern: re.Pattern[str], text: str, *, start: int) -> int:
    found = pattern.match(text, start)
    return start if found is None else found.end()


def _may_assign(found: re.Match[str], *, before: str) -> bool:
    """Whether the sign between name and value assigns here."""
    sign, opening = found["sign"], found["opening"]
    if sign == "==":
        return bool(opening)
    if sign == ",":
        return bool(found["closing"].strip("]")) and bool(opening)
    return sign != ">" or before == "<"


def _extent(text: str, start: int, *, opening: str, kind: NameKind, name: str) -> Extent | None:
    """Where the value lies; of one without quotes, the beginning that tells whether it is a secret."""
    quote = opening.lstrip("rbfuRBFU")
    if quote:
        found = _QUOTED[quote].match(text, start)
    else:
        most = min(len(text), start + _TELLING)
        found = _unquoted(kind, name).match(text, start, most) or _BARE.match(text, start, most)
    return None if found is None else found.span()


def _unquoted(kind: NameKind, name: str) -> re.Pattern[str]:
    if kind is NameKind.HEADER:
        return _COOKIES if "cookie" in name.lower() else _CREDENTIALS
    return _PHRASE if kind is NameKind.PHRASE else _BARE


def _stands_alone(text: str, extent: Extent, *, sign: str) -> bool:
    """Whether a value without quotes is not the beginning of a sentence, of an assignment or of a tag's content."""
    begin, end = extent
    if _CHAINED.match(text, end):
        return False
    if sign == ">":
        return text[end : end + 1] == "<"
    return not (sign == ":" and text[begin:end].isalpha() and _PROSE_AFTER.match(text, end))


def _judged(
    text: str, extent: Extent | None, *, name: str, kind: NameKind, is_quoted: bool, is_loose: bool
) -> Extent | None:
    if extent is None:
        return None
    begin, end = extent
    value = text[begin:end]
    if not is_quoted and kind is not NameKind.HEADER:
        end -= len(value) - len(value.rstrip(".:!?" if kind is not NameKind.PASSWORD else "."))
    if not is_secret_value(text[begin:end], name, kind=kind, is_quoted=is_quoted, is_loose=is_loose):
        return None
    if end - begin >= _TELLING and not is_quoted:
        end = max(end, _end(_unquoted(kind, name), text, start=begin))
    return begin, end
