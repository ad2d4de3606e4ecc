"""Whether what follows the name of a secret in a text is one, or code, a type, a number, a placeholder, prose.

A line of code assigns variables to `password`, a log counts tokens, a manual shows where a key goes: replacing
those would destroy what a trace is read for. Each rule here is one of those cases.
"""

import re

from rankscope.privacy.names import ENDINGS, NameKind, normal, words

REDACTED = "[REDACTED]"
"""What stands for a secret."""

_NO_VALUES = words("""
    a and any are arg args argument arguments auto basic bearer bool boolean bytes callable cfg cli config
    contains data default dict digest disabled does edit empty enabled env environ environment error expected
    expired explicit failed false field file flag flags float for found from function generate get given has help
    hidden if in incorrect input int integer invalid is item key kwargs lambda length line list literal loaded
    lookup manager manual match message method mismatch missing must name negotiate never new nil no none not null
    number object off ok on only option optional options or other out parameter params pass passed path
    placeholder present prompt protected provided received refused rejected request required response result
    return revoked rotated self set should shown skip stored str string success super text that the this to token
    true type undefined unknown unset used user using valid value values was when where which will with without
    word wrong yes you your
""")

_NUMBER = re.compile(
    r"[-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?(?:%|[a-z]{1,3}(?:/[a-z]{1,5})?)?|0x[0-9a-f]+", re.IGNORECASE
)
_DIGITS = re.compile(r"\d{4,}")
_CALL = re.compile(r"(?:[A-Za-z_][\w.]*)?[(\[]")
_ATTRIBUTE = re.compile(r"(?:[A-Za-z_]+\.)+[A-Za-z_]+")
_CLASS = re.compile(r"(?:[A-Z][a-z]+){2,}|[A-Z]{2,}(?:[A-Z][a-z]+)+")
_SNAKE = re.compile(r"_?[a-z]+(?:_[a-z]+)+_?")
_STEM = re.compile(r"pass|secret|token|key")
_PLACEHOLDER = re.compile(
    r"\$(?:[A-Z_][A-Z0-9_]*|[a-z_]+)$|@[A-Za-z_]+@?$|<.*>$|\[.*\]$|\*+$|%[A-Z_]+%$|%s$|['\"\\]?$"
    r"|.*(?:\$[{(]|%\(|\{\{|\{[\w.]*(?:[!:\[(][^}]{0,64})?\}|\*\*\*|…|\.\.\.|\[REDACTED)"
)
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w.-]*(?:/|$)")
_ONE_CHARACTER = re.compile(r"(.)\1*")
_LOWER = re.compile(r"[a-z]+")

_WHOLE_LINES = (NameKind.HEADER, NameKind.PHRASE)

SHORTEST = 3
"""Characters that a value has at least before it is taken for a secret."""

_LONGEST_NUMBER = 64
_LONG = 16
_WORD = 8
_MIXED = 6


def is_secret_value(value: str, name: str, *, kind: NameKind, is_quoted: bool, is_loose: bool) -> bool:
    """Whether the value of a name of this kind is a secret.

    Args:
        value: As it stands in the text, without quotes.
        name: What it is assigned to.
        kind: The name's kind.
        is_quoted: Whether it stood in quotes: code then says it literally.
        is_loose: Whether name and value only stand side by side (two items of a list): it must look random.
    """
    value = value.strip()
    if len(value) < SHORTEST or _is_shown(value, name):
        return False
    if len(value) <= _LONGEST_NUMBER and _NUMBER.fullmatch(value):
        return kind is NameKind.PASSWORD and _DIGITS.fullmatch(value) is not None
    is_word = not is_quoted and value.isalpha() and "cookie" in name.lower()  # "the Cookie: header"
    if is_loose or is_word or kind is NameKind.VAGUE:
        return _looks_random(value) and not _is_code(value, name)
    if is_quoted:
        return kind in _WHOLE_LINES or " " not in value or _may_be_words(value)
    return not _is_code(value, name)


def _is_shown(value: str, name: str) -> bool:
    """Whether the text shows where a value goes, or what it is called, not the value."""
    return (
        value.rpartition(" ")[2].lower() in _NO_VALUES  # "Bearer token" too
        or _PLACEHOLDER.match(value) is not None
        or _PATH.match(value) is not None
        or _ONE_CHARACTER.fullmatch(value) is not None
        or (value.replace("-", "_").isidentifier() and _is_called(normal(value), normal(name)))
    )


def _is_called(value: str, name: str) -> bool:
    """Whether the value is a name itself: `NO_AUTH = "no_auth"`, `auth_header = "Authorization"`."""
    return value in name or (value in ENDINGS and ("_" in value or ENDINGS[value] is NameKind.HEADER))


def _is_code(value: str, name: str) -> bool:
    """Whether the value is an expression, or a variable or a type by its name."""
    if name.isupper() and value[-1].isalnum() and any(map(str.isdigit, value)):
        return False  # PASSWORD=x(7: a shell's variable, and no expression ends so
    if _CALL.match(value) or _ATTRIBUTE.fullmatch(value) or _CLASS.fullmatch(value):
        return True
    own = normal(name).rpartition("_")[2]
    whole = normal(value)
    if value.isidentifier() and (whole == own or whole.endswith(f"_{own}")):
        return True  # password=db_password
    is_variable = _SNAKE.fullmatch(value) is not None and not name.isupper()
    return is_variable and not _STEM.search(value)


def _may_be_words(value: str) -> bool:
    """A sentence beside `password` is the label of a form: "Enter your password"."""
    return not value[0].isupper() or any(map(str.isdigit, value))


def _looks_random(value: str) -> bool:
    """Whether this is no word: `token: attention` is what a language model writes."""
    if " " in value:
        return False
    has_digit = any(map(str.isdigit, value))
    if has_digit and any(map(str.isalpha, value)):
        return len(value) >= _MIXED
    if _LOWER.fullmatch(value):
        return len(value) >= _LONG or _STEM.search(value) is not None
    return not value.istitle() and len(value) >= _WORD
