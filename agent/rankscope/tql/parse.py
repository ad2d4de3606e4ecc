"""Text to syntax tree. Promises: any text gives a tree or a `TqlSyntaxError` that points; none recurses deeply.

lark and the grammar are loaded by the first call, so that importing `rankscope` costs nothing.
"""

import difflib
import functools
import string
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rankscope.tql.errors import NOWHERE, Place, TqlSyntaxError
from rankscope.tql.habits import habit, stage_habit
from rankscope.tql.nodes import Query
from rankscope.tql.words import AGGREGATES, MAX_BYTES, MAX_DEPTH, MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lark import Lark, Token, Tree
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

_NO_NODE = {
    *("relation_operator", "set_operator", "comparison_operator", "match_operator", "question"),
    *("sum_operator", "product_operator", "direction", "aggregates", "by"),
}
"""Rules that become a part of a node and are none themselves."""

_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
_RELATIONS = {">", ">>", "<", "<<", "~", "!>", "!>>"}
_ARITHMETIC = {"+", "-", "*", "/", "%"}
_IN_WORDS = {
    "NAME": "a field",
    "PATH": "a field",
    "NUMBER": "a number",
    "STRING": "a string",
    "$END": "the end of the query",
    "AND": "and",
    "OR": "or",
    "STEPS": "steps",
    "FIRST": "first",
    "LAST": "last",
}
_VALUE_START = {"true", "false", "a field", "a number", "a string"}
_TESTS = {"exists", "missing", "isnan", "isinf", "isfinite"}
_FEW = 4
_LETTERS = f"{string.ascii_letters}_"
_STAGE_WORDS = ("where", "select", "count()", "across", "order by", "top", "first", "last", "limit")
_SIGNS = ("===", "=>", "=<")
"""Signs of other languages that are longer than a character."""

_AFTER = {
    "by": "name a field, as in rank",
    "select": "name a field, as in rank",
    "every": "write a stretch, as in 10 steps or 30s",
    "limit": "write how many, as in 10",
    "top": "write how many and by what, as in top 10 by tensor.l2",
    "across": "name what is compared, as in across rank: spread(tensor.l2)",
    "order": "write order by and a field",
}
"""What to write behind a word that ends a query too early."""

_ENDINGS = {
    "a predicate": "write a condition, as in tensor.nonfinite_count > 0",
    "a comparison": "compare it with something, as in tensor.l2 > 0 or agree == true, or ask exists(tensor.l2)",
    "a value": "write what to compare with, as in tensor.l2 > 0",
    "..": "write a list, as in x in [1, 2], or an interval, as in x in 1..7",
    ")": "close the parenthesis with )",
    "]": "close the list with ]",
    "}": "close the braces with }",
}
"""What to write, by what could stand at the end; the first that fits."""


def parse(text: str) -> Query:
    """The syntax tree of a query.

    Args:
        text: At most 8 KiB of UTF-8.

    Raises:
        TqlSyntaxError: It is not a query, or it is longer, larger or deeper than allowed.
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    from rankscope.tql.build import Builder

    check_text(text)
    try:
        tree = parser().parse(text)
    except UnexpectedToken as error:
        raise _unexpected_token(text, error) from error
    except UnexpectedCharacters as error:
        raise _unexpected_character(text, error) from error
    except JoinedWords as error:
        raise _run_together(text, error.start) from error
    _check_size(tree)
    return Builder().build(tree)


@functools.cache
def parser() -> "Lark":
    """The parser of the language, made when it is first asked for."""
    from lark import Lark

    grammar = files("rankscope.tql").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(
        grammar, parser="lalr", lexer="contextual", postlex=_Apart(), propagate_positions=True, maybe_placeholders=False
    )


def check_text(text: str) -> None:
    """Refuse a text that is no Unicode, or longer than a query may be.

    Raises:
        TqlSyntaxError: It is one of them.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        place = place_at(text, error.start)
        message = f"the text holds U+{ord(text[error.start]):04X}, half of a surrogate pair"
        raise TqlSyntaxError("not_unicode", message, place=place) from error
    if size > MAX_BYTES:
        message = f"the query is {size} bytes long, the limit is {MAX_BYTES}"
        raise TqlSyntaxError("text_too_long", message, place=NOWHERE)


def place_at(text: str, start: int, *, length: int = 1) -> Place:
    """The place of `length` characters from offset `start` of the text."""
    line = text.count("\n", 0, start) + 1
    return Place(start, start + length, line, start - (text.rfind("\n", 0, start) + 1) + 1)


def _check_size(tree: "Tree[Token]") -> None:
    """Refuse what is too large, without recursion: this runs before anything that recurses."""
    from lark import Tree

    from rankscope.tql.build import place_of

    count, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        count += node.data not in _NO_NODE
        if depth > MAX_DEPTH:
            message = f"the query is nested deeper than {MAX_DEPTH} levels"
            raise TqlSyntaxError("too_deep", message, place=place_of(node.meta))
        waiting += [(child, depth + 1) for child in node.children if isinstance(child, Tree)]
    if count > MAX_NODES:
        message = f"the query has {count} nodes, the limit is {MAX_NODES}"
        raise TqlSyntaxError("too_many_nodes", message, place=place_of(tree.meta))


def _unexpected_token(text: str, error: "UnexpectedToken") -> TqlSyntaxError:
    token: Token = error.token
    expected = _in_words(error.accepts or error.expected)
    last: Any = next(reversed(_values(error)), None)
    if expected == ("(",) and getattr(last, "type", "") == "NAME":
        return _no_stage(last)
    hint = "relate predicates without braces: a >> b" if str(token) in _RELATIONS and "without" in expected else ""
    hint = hint or _hint(str(token), expected, chained=_is_chained(error))
    start = token.start_pos or 0
    if token.type != "$END" and _runs_on(text, start):
        return _run_together(text, start)
    if token.type == "$END":
        place = place_at(text, len(text.rstrip()))
        hint = hint or _ending(text, expected)
        return TqlSyntaxError("unexpected_end", "the query ends too early", place=place, expected=expected, hint=hint)
    place = place_at(text, start, length=len(token))
    if text.lstrip().lower().startswith(("select ", "with ")):
        hint = "SQL is asked with rankscope sql; in TQL the condition comes first, as in tensor.l2 > 1 | first"
    hint = hint or habit(text, start + len(token)) or _compared(str(token), expected) or _offered(expected)
    return TqlSyntaxError("unexpected", f"{token} does not fit here", place=place, expected=expected, hint=hint)


def _offered(expected: tuple[str, ...]) -> str:
    """What to write where nothing better is known: the first few of what could stand there."""
    if len(expected) == 1:
        return f"write {expected[0]} here"
    return f"write one of these here: {', '.join(expected[:_FEW])}" if expected else ""


def _compared(found: str, expected: tuple[str, ...]) -> str:
    """What to write where a condition is compared, as in `exists(x) == true`."""
    is_wrong = found in _COMPARISONS and "and" in expected
    return (
        "a condition is true or false by itself: leave the comparison out, or write not before it" if is_wrong else ""
    )


def _runs_on(text: str, start: int) -> bool:
    """Whether no space stands before a word that another word stands before."""
    before = text[:start].rstrip(_LETTERS)
    # What runs on behind a number is its unit and no word, as in 0x10.
    return len(before) < start and not before[-1:].isdigit() and (text[start].isalnum() or text[start] == "_")


def _run_together(text: str, start: int) -> TqlSyntaxError:
    """The error of two words that are written as one, the second of which begins at an offset."""
    begin = len(text[:start].rstrip(_LETTERS))
    end = len(text) - len(text[start:].lstrip(_LETTERS + string.digits))
    hint = f"write {text[begin:start]}, and a space behind it"
    place = place_at(text, begin, length=end - begin)
    return TqlSyntaxError("unexpected", f"{text[begin:end]} does not fit here", place=place, hint=hint)


class JoinedWords(Exception):  # noqa: N818 -- becomes an error where the text is known
    """Two words without a space between them, such as `andrank`: the lexer takes `and` where no name may stand.

    Attributes:
        start: Offset of the second one.
    """

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


class _Apart:
    """Lets tokens pass that do not run into one another."""

    always_accept = ()

    def process(self, stream: "Iterator[Token]") -> "Iterator[Token]":
        """The tokens as they come."""
        last: Token | None = None
        for token in stream:
            if last is not None and last.end_pos == token.start_pos and _runs_on(f"{last}{token}", len(last)):
                raise JoinedWords(token.start_pos or 0)
            last = token
            yield token


def _ending(text: str, expected: tuple[str, ...]) -> str:
    """What to write behind a query that stops in the middle."""
    if text.rstrip().endswith("|"):
        return "name a stage behind the last |, or leave it out"
    if advice := _AFTER.get((text.split() or [""])[-1]):
        return advice
    for wanted, advice in _ENDINGS.items():
        if wanted in expected:
            return advice
    return f"go on with {expected[0]}" if expected else "write the rest of it"


def _no_stage(word: "Token") -> TqlSyntaxError:
    """A word behind `|` that begins no stage: the parser took it for an aggregate and misses its parentheses."""
    from rankscope.tql.build import place_of

    near = difflib.get_close_matches(word.lower(), _STAGE_WORDS, n=1, cutoff=0.6)
    hint = stage_habit(word) or (f"did you mean {near[0]}?" if near else "")
    if word in AGGREGATES and word != "count":
        hint = f"write what of, as in {word}(tensor.l2)"
    message = f"{word} is no stage"
    return TqlSyntaxError("unknown_stage", message, place=place_of(word), expected=_STAGE_WORDS, hint=hint)


def _unexpected_character(text: str, error: "UnexpectedCharacters") -> TqlSyntaxError:
    position: Any = error.pos_in_stream
    start = int(position or 0)
    letter = text[start]
    expected = _in_words(error.allowed or set())
    if letter in "\"'":
        place = place_at(text, start, length=len(text) - start)
        return TqlSyntaxError(
            "open_string",
            "the string is not closed",
            place=place,
            expected=(letter,),
            hint=f"write {letter} at its end",
        )
    wrong = next((word for word in _SIGNS if text.startswith(word, start)), letter)
    place = place_at(text, start, length=len(wrong))
    hint = habit(text, start + len(wrong)) or _offered(expected)
    return TqlSyntaxError("unexpected", f"{wrong} does not fit here", place=place, expected=expected, hint=hint)


def _is_chained(error: "UnexpectedToken") -> bool:
    """Whether a structural operator lies open with only a value behind it, as in `0 < rank < 8`."""
    return "relation_operator" in [getattr(value, "data", None) for value in _values(error)[-3:]]


def _values(error: "UnexpectedToken") -> list[Any]:
    """What the parser had understood before the error, the last part last."""
    parser: Any = error.interactive_parser
    return parser.parser_state.value_stack


def _hint(found: str, expected: tuple[str, ...], *, chained: bool) -> str:
    if chained:
        return "a comparison joins two values; for an interval write x in 1..7"
    words = [word for word in expected if word.isalpha()]
    near = difflib.get_close_matches(found.lower(), words, n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else ""


def _in_words(terminals: set[str]) -> tuple[str, ...]:
    """What could have stood there, as a person would say it, the shortest list that is true."""
    words = {spelled(terminal) for terminal in terminals}
    if "where" in words:
        return _STAGE_WORDS
    if "==" in words:
        words = words - _COMPARISONS | {"a comparison"}
    if ">>" in words:
        words = words - _RELATIONS | {"a structural operator"}
    if words >= _VALUE_START:
        words = words - _VALUE_START - {"-"} | {"a value"}
    if words >= _TESTS:
        words = words - _TESTS - {"not", "!", "(", "a value"} | {"a predicate"}
    if words >= _ARITHMETIC:
        words = words - _ARITHMETIC | {"arithmetic"}
    return tuple(sorted(words, key=lambda word: (not word.startswith("a "), word)))


def spelled(terminal: str) -> str:
    """A terminal of the grammar as a person writes it."""
    if terminal in _IN_WORDS:
        return _IN_WORDS[terminal]
    definitions = {definition.name: definition.pattern.value for definition in parser().terminals}
    return definitions.get(terminal, terminal)
