r"""What people write who know another language, and what it is called here: the hint of a text that does not parse.

A habit is told by the text up to and with the word that does not fit. Without one the hint is what could stand there.
"""

import re

_LOOKED_AT = 80
"""Characters before the wrong word that are looked at: a habit is a few words."""

_OPPOSITE = "write not before the condition, as in not (x in [1, 2])"
_POWER = "multiply, as in x * x"
_UNIT = "write the unit at its number, as in 5ms"

_HABITS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?:{pattern})\Z", re.IGNORECASE | re.DOTALL), hint)
    for pattern, hint in (
        (r"\bis", "ask exists(x) or missing(x), isnan(x) or isinf(x)"),
        (r"\bbetween", "write an interval, as in x in 1..7"),
        (r"\b(?:i?like|matches|regexp)", 'match with a pattern, as in x =~ "a.*"'),
        (r"\bnot|!", _OPPOSITE),
        (r"\bin\s*\([^()]*,", "a list stands in brackets, as in x in [1, 2]"),
        (r"\[[^\[\]]*\.\.", "an interval stands without brackets, as in x in 0..7"),
        (r"\bin\s*\[\s*\]", "write at least one item, as in x in [1, 2]"),
        (r"\d(?:and|or)\s+\S+", "write a space behind the number, as in 1 and"),
        (r"\d\s+(?:ns|us|ms|s|m|h|B|KiB|MiB|GiB)", _UNIT),
        (r"\.\s*\.\s*\.", "write two points, as in 0..7"),
        (r"\d\.", "write a digit behind the point, as in 5.0"),
        (r"(?<!\w)\.", "write a digit before the point, as in 0.5"),
        (r"\b\d+(?:_+\d*)+", "write the digits without _"),
        (r"\b0x\w*", "write a number in decimal digits"),
        (r"<\s*>", "write != for unequal"),
        (r"\*\s*\*|\^", _POWER),
        (r"\bas", "leave it out: a column is named as it is written"),
        (r"\bselect\s*\*", "leave select out: every field comes without it"),
        (r"\b(?:first|last)\s+\d+", "first and last are one row: write limit 3, behind order by for others"),
        (r"\bevery\b[^|]*\bby", "write by before every, as in count() by rank every 10 steps"),
        (r"[“”„«»‘’]", "write straight quotes, as in \"a\" or 'a'"),
        (r"=>", "write >= for greater or equal"),
        (r"=<", "write <= for less or equal"),
        (r"(?<![=!<>])=|===", "write == to compare"),
        (r"=~\s*/", 'write the pattern in quotes, as in x =~ "a.*"'),
        (r"(?<![=!])~", 'match with a pattern, as in x =~ "a.*"'),
        (r"&", "write and"),
        (r";", "a query is one line of stages joined by |"),
    )
)

_STAGES = {
    "group": "write the aggregate first, as in | count() by rank",
    "sort": "write order by",
    "head": "write limit 10",
    "take": "write limit 10",
    "tail": "write last, or order by with desc and limit",
    "filter": "write where",
    "having": "write where",
    "project": "write select",
    "fields": "write select",
}
"""Stages of other languages."""

WORDS = {
    "null": "ask missing(x) or exists(x)",
    "none": "ask missing(x) or exists(x)",
    "nil": "ask missing(x) or exists(x)",
    "nan": "ask isnan(x)",
    "inf": "ask isinf(x)",
    "infinity": "ask isinf(x)",
}
"""Values of other languages, and what is asked instead of comparing with them."""


def habit(text: str, end: int) -> str:
    """What to write instead of what stands before an offset of a query; "": it is no habit.

    Args:
        text: The query.
        end: Offset behind the word or sign that does not fit.
    """
    before = text[max(0, end - _LOOKED_AT) : end]
    return next((hint for pattern, hint in _HABITS if pattern.search(before)), "")


def stage_habit(word: str) -> str:
    """What to write instead of a stage of another language; "": it is none."""
    return _STAGES.get(word.lower(), "")
