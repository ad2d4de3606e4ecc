"""Lays the compiler's SQL out for people: a clause a line, sub-selects indented; nothing but white space changes.

The compiler writes one line, as that costs least; who reads a statement is not in a hurry.
"""

import re

_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\{[^}]*\}|\w+|[^\w\s]|\s+")
_CLAUSE = re.compile(
    r"(?:FROM|PREWHERE|WHERE|GROUP BY|HAVING|ORDER BY|LIMIT|(?<!ASOF )LEFT JOIN|ASOF LEFT JOIN|INNER JOIN|UNION ALL)\b"
)
_SELECT = re.compile(r"\s*(?:SELECT|WITH)\b")
_INDENT = "  "


def laid_out(sql: str) -> str:
    """The statement with its clauses on lines of their own.

    Args:
        sql: As the compiler writes it: keywords in capitals, no remarks.
    """
    written: list[str] = []
    selects: list[bool] = [True]
    for token in _TOKEN.finditer(sql):
        text = token[0]
        if text == "(":
            selects.append(_SELECT.match(sql, token.end()) is not None)
            text += _line(selects) if selects[-1] else ""
        elif text == ")" and len(selects) > 1 and selects.pop():
            text = _line(selects) + text
        elif selects[-1] and token.start() and _CLAUSE.match(sql, token.start()):
            written[-1:] = [written[-1].rstrip(" ")]
            text = _line(selects) + text
        written.append(text)
    return "".join(written)


def _line(selects: list[bool]) -> str:
    return "\n" + _INDENT * (sum(selects) - 1)
