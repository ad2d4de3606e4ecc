"""The last look at a text before it is sent: it reads the text itself, and knows nothing of trees or of who wrote it.

It goes over the text word by word and refuses it unless every raw table stands in a WITH part of ours, restricted by
PREWHERE to the bound project (and run); unless what is read elsewhere is such a part, a name given in the text or a
SELECT in brackets; unless every word before a bracket is a function on the list; and unless no text in quotes stands
outside our parts, nor a comment, a semicolon or a word that is no part of a SELECT.
"""

import re
from collections.abc import Iterator, Sequence

from rankscope_query_api.sql.functions import FUNCTIONS

_TABLES = (
    *("spans", "tensor_stats", "scalars", "modules", "events", "gaps", "runs", "hits"),
    *("collectives", "clocks", "system_stats", "standings"),
)

_RESTRICTED = re.compile(
    rf"(?P<shown>[^;]*) FROM (?:{'|'.join(_TABLES)}) AS rs_t"
    r" PREWHERE rs_t\.project = \{project:String\}(?P<run> AND rs_t\.run_id = \{run:String\})?"
)
_OURS = re.compile(
    r"(?:WITH |, )rs_(?P<view>[a-z_]+) AS \(SELECT (?P<body>[^;]*? FROM [a-z_]+ AS rs_t PREWHERE [^()]*)\)"
)
_CAPTURING = re.compile(r"(\S+) AS `?(project|run_id)\b")
"""ClickHouse compares with an alias where a column of its name is meant: `'x' AS project` would show every project."""

_QUERY_WORDS = re.compile(r"\b(?:SELECT|FROM|JOIN|UNION|WITH|SETTINGS|INTO|FORMAT|IN|WHERE|ARRAY JOIN)\b")

_TOKEN = re.compile(
    r"""(?P<space>\ +)
    |(?P<name>"[A-Za-z_][A-Za-z0-9_]*")
    |(?P<bound>\{(?:u_[A-Za-z_][A-Za-z0-9_]*|s[0-9]+):[A-Za-z0-9]+(?:\([A-Za-z0-9]+\))?\})
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?![A-Za-z0-9_.]))
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>->|<=|>=|<>|!=|\|\||[-+*/%=<>(),.\[\]])""",
    re.VERBOSE,
)

_LANGUAGE = """
ALL AND ANTI ANY AS ASC ASOF BETWEEN BY CASE CAST CROSS CURRENT DESC DISTINCT DIV ELSE END EXCEPT EXISTS FALSE FIRST
FOLLOWING FROM FULL GROUP HAVING ILIKE IN INNER INTERSECT INTERVAL IS JOIN LAST LEFT LIKE LIMIT NOT NULL NULLS OFFSET
ON OR ORDER OUTER OVER PARTITION PRECEDING RANGE RIGHT ROW ROWS SELECT SEMI THEN TRUE UNBOUNDED UNION USING WHEN WHERE
WITH NANOSECOND MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH true false
Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32 Float64 String Bool DATE Date DateTime DateTime64 Nullable
Array
"""
"""Words of a SELECT, and the types of casts."""

_OPENED = """
ALL AND ANY AS BETWEEN BY CASE CAST DISTINCT DIV ELSE EXCEPT EXISTS FROM HAVING ILIKE IN INTERSECT JOIN LIKE NOT ON OR
OVER SELECT THEN UNION USING WHEN WHERE DateTime64 Nullable Array
"""
"""Words of the language that a bracket may follow."""

_WORDS = frozenset(_LANGUAGE.split())
_BEFORE_BRACKETS = frozenset(_OPENED.split())
_READING = frozenset({"FROM", "JOIN"})
_LISTING = frozenset({"IN"})
_OPENING, _CLOSING = frozenset({"("}), frozenset({")"})


class UnguardedTextError(AssertionError):
    """A text was made that must not be sent: a fault of ours, never of a statement."""


def check_text(sql: str, *, of_run: bool) -> None:
    """Refuses a text that could read what it must not.

    Args:
        sql: What would be sent.
        of_run: Whether the run has to be restricted too.

    Raises:
        UnguardedTextError: It could.
    """
    views, rest = _ours(sql, of_run=of_run)
    tokens = list(_tokens(rest))
    shared = {
        name
        for name, word, bracket in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if name.startswith('"u_') and (word, bracket) == ("AS", "(")
    }
    before = ["", *tokens]
    for at, (last, token) in enumerate(zip(before, tokens, strict=False)):
        following = tokens[at + 1] if at + 1 < len(tokens) else ""
        _check_place(last, token, shared={*shared, *views})
        _check_word(token, last, following=following)
        if token in _LISTING:
            _check_listed(tokens[at + 1 :])
    if tokens[:1] not in (["SELECT"], ["WITH"]):
        raise UnguardedTextError(f"this is no SELECT: {sql}")


def _ours(sql: str, *, of_run: bool) -> tuple[set[str], str]:
    """The names of our WITH parts, and the text without them."""
    views: set[str] = set()
    at = 0
    while found := _OURS.match(sql, at):
        _check_part(found["body"], of_run=of_run)
        views.add(f"rs_{found['view']}")
        at = found.end()
    rest = sql[at:]
    if not views:
        return views, rest
    return views, f"WITH {rest[2:]}" if rest.startswith(", ") else rest.lstrip(" ")


def _check_part(body: str, *, of_run: bool) -> None:
    restricted = _RESTRICTED.fullmatch(body)
    if restricted is None or (of_run and restricted["run"] is None):
        raise UnguardedTextError(f"a table is read without its project or run: {body}")
    if _QUERY_WORDS.search(restricted["shown"]):
        raise UnguardedTextError(f"more than one table is read: {body}")
    for value, name in _CAPTURING.findall(restricted["shown"]):
        if value != f"rs_t.{name}":
            raise UnguardedTextError(f"{name} is not what it is compared as: {body}")


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or text.startswith(("--", "/*", "//"), at):
            raise UnguardedTextError(f"{text[at : at + 20]!r} must not be sent")
        if found.lastgroup != "space":
            yield found[0]
        at = found.end()


def _check_place(last: str, token: str, *, shared: set[str]) -> None:
    """What is read is ours, given in the text, or a SELECT in brackets; ours stands nowhere else."""
    if last in _READING and token not in _OPENING and token not in shared:
        raise UnguardedTextError(f"{token!r} must not be read")
    if token.startswith("rs_") and last not in _READING:
        raise UnguardedTextError(f"{token!r} stands where nothing is read")
    if token.startswith('"rs_') and not re.fullmatch(r'"rs_c[0-9]+"', token):
        raise UnguardedTextError(f"{token!r} is a name of ours")


def _check_word(token: str, last: str, *, following: str) -> None:
    """A word is one of the language, or a function on the list and before its bracket."""
    if not (token[0].isalpha() or token[0] == "_") or token.startswith("rs_"):
        return
    is_call = following == "("
    if not (token in FUNCTIONS if is_call and token not in _BEFORE_BRACKETS else token in _WORDS):
        raise UnguardedTextError(f"the word {token!r} must not be sent, behind {last!r}")


def _check_listed(tokens: Sequence[str]) -> None:
    """Behind IN stands a parameter, or a bracket with a SELECT or without any name in it."""
    first, second = (*tokens[:2], "", "")[:2]
    if first.startswith("{"):
        return
    if first != "(":
        raise UnguardedTextError(f"{first!r} must not stand behind IN")
    if second in ("SELECT", "WITH"):
        return
    depth = 0
    for token in tokens:
        depth += (token in _OPENING) - (token in _CLOSING)
        if token.startswith('"'):
            raise UnguardedTextError(f"the name {token} must not stand in a list behind IN")
        if depth == 0:
            return
