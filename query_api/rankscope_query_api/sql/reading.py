"""Text to tree: sqlglot's parser for ClickHouse, with every function kept as it was written.

Before it runs, the text is measured: sqlglot's parser calls itself once per bracket, per `NOT` or `-` in a row and per
subscript in a row, so that a text of a few kilobytes would end in a stack too deep for Python. A row of 600 subscripts
took 1.4 s, 500 times what a statement takes: each looks at all before it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import sqlglot
from sqlglot.dialects.clickhouse import ClickHouse
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.expressions.core import Expr
from sqlglot.tokens import Token, TokenType  # pyright: ignore[reportPrivateImportUsage]  # where 30.0 has them

from rankscope_query_api.errors import InvalidQueryError, Position

MAX_BYTES = 8 * 1024
"""Of a statement, as UTF-8."""

MAX_NESTING = 32
"""Brackets inside one another, signs and subscripts in a row."""

MAX_NODES = 2_000
"""Of the tree, a few for each word."""

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_AGAIN = (TokenType.R_BRACKET, TokenType.L_BRACKET)
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_BEGINNINGS = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN})
_PREFIXES = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.ARROW})


def _parse_cast(parser: Any) -> Any:
    return parser._parse_cast(True)


def _parse_case(parser: Any) -> Any:
    return parser._parse_case()


class Kept(ClickHouse):
    """ClickHouse's dialect without what sqlglot knows of functions and subscripts, which it would rewrite."""

    INDEX_OFFSET = 0  # it would count them from 0, and look at all of a nested one at each depth: 0.6 s for 8 KiB

    class Parser(ClickHouse.Parser):
        """Functions stay names with arguments; `CAST` and `CASE` have a grammar of their own."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CAST": _parse_cast}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": _parse_case}

        def _warn_unsupported(self) -> None:
            """Refuses what sqlglot would keep as a text, with a line of it in its log."""
            self.raise_error("this is no SELECT")


def parsed(text: str) -> Expr:
    """The tree of the one statement that a text is.

    Raises:
        InvalidQueryError: It is longer, deeper or larger than may be, no statement, or more than one.
    """
    _refuse_long(text)
    try:
        tokens = sqlglot.tokenize(text, dialect=Kept)
        _refuse_other(text, tokens)
        _refuse_deep(text, tokens)
        statements = [tree for tree in Kept().parser().parse(tokens, text) if tree is not None]
    except ParseError as error:
        raise _syntax_error(error) from None
    except (SqlglotError, RecursionError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        # A parser that is confused by a text fails in many ways; whichever it is, the text is at fault.
        raise InvalidQueryError("this is no SQL that can be read", hint=_HINT, code="syntax") from error
    if len(statements) != 1:
        raise InvalidQueryError("one SELECT is expected, and this is nothing", hint=_HINT, code="syntax")
    _refuse_large(statements[0])
    return statements[0]


_HINT = "write one SELECT over the views; query_api/VIEWS.md lists them"


def position_of(text: str, node: Expr) -> Position | None:
    """Where the first word of a node stands in the text; None: sqlglot does not know."""
    places = [(one.meta["start"], one.meta["end"]) for one in node.walk() if {"start", "end"} <= one.meta.keys()]
    if not places:
        return None
    start, end = min(places)
    return position_at(text, start, length=end - start + 1)


def position_at(text: str, offset: int, *, length: int) -> Position:
    """Line and column of an offset in characters."""
    before = text[:offset].split("\n")
    return Position(len(before), len(before[-1]) + 1, max(1, length))


def _refuse_long(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise InvalidQueryError(
            f"the statement has {size} bytes, and may have {MAX_BYTES}",
            hint="send long lists as a parameter: `x IN {names:Array(String)}`",
            code="too_long",
        )
    if not text.isprintable() and (control := next(_controls(text), None)):
        raise InvalidQueryError(
            f"the character U+{ord(control[1]):04X} is not for statements",
            hint="send it in a parameter, as in `x = {text:String}`",
            position=position_at(text, control[0], length=1),
            code="syntax",
        )


def _controls(text: str) -> Iterator[tuple[int, str]]:
    """Offsets of what separates no words and is no letter: controls and halves of surrogate pairs."""
    for at, letter in enumerate(text):
        if (letter < " " and letter not in "\t\r\n") or letter == "\x7f" or "\ud800" <= letter <= "\udfff":
            yield at, letter


def _refuse_other(text: str, tokens: Sequence[Token]) -> None:
    """Refuses what begins as no SELECT does: sqlglot would take it, and write it to its log."""
    first = tokens[0] if tokens else None
    if first is not None and first.token_type not in _BEGINNINGS and first.token_type is not TokenType.SEMICOLON:
        raise InvalidQueryError(
            f"one SELECT is expected, and this begins with {first.text[:40]!r}",
            hint=_HINT,
            position=position_at(text, first.start, length=len(first.text)),
            code="syntax",
        )
    inner = [token for token in tokens[:-1] if token.token_type is TokenType.SEMICOLON]
    if inner:
        raise InvalidQueryError(
            "one SELECT is expected, and these are two statements",
            hint="send them one by one",
            position=position_at(text, inner[0].start, length=1),
            code="syntax",
        )


def _refuse_deep(text: str, tokens: Sequence[Token]) -> None:
    signs = 0
    rows = [0]  # for each bracket that is open, the subscripts in a row before this token; `x[1][2]` has two
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        signs = signs + 1 if kind in _PREFIXES else 0
        if kind in _CLOSING:
            rows = rows[:-1] or [0]
        else:
            rows[-1] = rows[-1] + 1 if (before, kind) == _AGAIN else 0
        if kind in _OPENING:
            rows.append(0)
        before = kind
        if len(rows) - 1 + max(rows) + signs > MAX_NESTING:
            raise InvalidQueryError(
                f"the statement is nested more than {MAX_NESTING} deep",
                hint="name parts of it with WITH, or take brackets and signs away",
                position=position_at(text, token.start, length=len(token.text)),
                code="too_deep",
            )


def _refuse_large(tree: Expr) -> None:
    nodes = sum(1 for _ in tree.walk())
    if nodes > MAX_NODES:
        raise InvalidQueryError(
            f"the statement has {nodes} parts, and may have {MAX_NODES}",
            hint="replace a row of OR by `x IN {values:Array(String)}`",
            code="too_many_nodes",
        )


_INTO_HINT = "leave INTO out: the answer comes to who asks, as `format` says; json, csv or arrow"


def _syntax_error(error: ParseError) -> InvalidQueryError:
    first = error.errors[0] if error.errors else {}
    line, column = first.get("line"), first.get("col")
    near = str(first.get("highlight") or "")
    position = None
    if isinstance(line, int) and isinstance(column, int):
        position = Position(line, max(1, column - max(len(near), 1) + 1), max(1, len(near)))
    shown = f", near {near[:60]!r}" if near else ""
    what = str(first.get("description") or "it cannot be read").rstrip(".")
    what = "something is missing" if "<class" in what else what
    hint = _INTO_HINT if near.upper() == "INTO" else _HINT
    what = f"no SQL: {what[:1].lower()}{what[1:]}{shown}"
    return InvalidQueryError(what, hint=hint, position=position, code="syntax")
