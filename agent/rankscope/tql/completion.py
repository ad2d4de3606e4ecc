"""What could be written at a place of a query: names, words and functions, and what only the store can tell.

Any text is taken, also one that is no query: where nothing fits, nothing is offered. Touches no store: it says whose
keys or values would fit, and `rankscope_query_api` asks for those.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rankscope.tql.check import check
from rankscope.tql.errors import TqlError
from rankscope.tql.fields import FIELDS, KEYED, MAPS, Entity, Field, Type, scope_entity
from rankscope.tql.functions import FUNCTIONS, signature
from rankscope.tql.history import HISTORIES
from rankscope.tql.nodes import FieldRef
from rankscope.tql.parse import JoinedWords, check_text, parse, parser, spelled
from rankscope.tql.typed import Across, Aggregate, Select, Typed
from rankscope.tql.unknown import key_of
from rankscope.tql.words import ACROSS, AGGREGATES, UNITS

if TYPE_CHECKING:
    from lark import Token

_PATH = re.compile(r"(?<![\w\"'.])[A-Za-z_]\w*(?:\.\w*)*\Z", re.ASCII)
_NUMBER = re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?([A-Za-z]*)\Z", re.ASCII)
_OPEN_KEY = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*\.\Z", re.ASCII)
_CLOSED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|#[^\n]*", re.DOTALL)
_COMPARED_BY = frozenset({"==", "!=", "<", "<=", ">", ">=", "contains"})
_WITH_TEXTS = frozenset(scope for scope in MAPS if KEYED[scope][0] is Type.ATTRIBUTE)
"""Scopes whose keys hold texts that the store can tell."""

_AXES = ("rank", "layer", "mesh.")
_WITHOUT_ARGUMENTS = frozenset({"count", "rate", "count_ranks", "missing_ranks"})


class Kind(StrEnum):
    """What a suggestion is."""

    FIELD = "field"
    COLUMN = "column"
    KEY = "key"
    FUNCTION = "function"
    KEYWORD = "keyword"
    OPERATOR = "operator"
    VALUE = "value"
    UNIT = "unit"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Something that fits.

    Attributes:
        text: What to write in place of the stretch.
        kind: What it is.
        detail: Type and meaning, or how a function is called; may be empty.
    """

    text: str
    kind: Kind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """What fits at a place.

    Attributes:
        start: Offset of the stretch that a suggestion replaces, 0-based, in code points.
        end: Offset after it.
        suggestions: What is known without a store, the likeliest first.
        prefix: What a key or value begins with so far.
        keys_of: The scope whose keys fit (`attr`, `metric`, `mesh`, `run.config`, `hit.seen`); "": none.
        values_of: The field, or scope and key (`attr`, `hit.seen`), whose values fit; None: nothing the store knows.
    """

    start: int
    end: int
    suggestions: tuple[Suggestion, ...] = ()
    prefix: str = ""
    keys_of: str = ""
    values_of: Field | tuple[str, str] | None = None


def complete(text: str, position: int | None = None) -> Completion:
    """What could be written at a place of a query.

    Args:
        text: The query so far, at most 8 KiB of UTF-8.
        position: Offset of the cursor in code points; None: the end. What stands behind it is not looked at.

    Raises:
        TqlSyntaxError: It is longer than a query may be.
    """
    check_text(text)
    before = text if position is None else text[:position]
    opened = _open_string(before)
    if opened is not None:
        return _in_string(before, opened)
    if number := _NUMBER.search(before):
        units = tuple(Suggestion(unit, Kind.UNIT) for unit in UNITS if unit.startswith(number[1]))
        return Completion(number.start(1), len(before), units)
    path = _PATH.search(before)
    start = path.start() if path else len(before)
    return _of_word(before[:start], before[start:])


def _open_string(text: str) -> int | None:
    """Where a string begins that is not closed; None: everything is."""
    at = 0
    while found := re.compile(r"[\"'#]").search(text, at):
        closed = _CLOSED.match(text, found.start())
        if closed is None:
            return found.start()
        at = closed.end()
    return None


def _in_string(before: str, quote: int) -> Completion:
    """A key behind `attr."`, or a text that something is compared with."""
    head, prefix = before[:quote], before[quote + 1 :]
    if path := _OPEN_KEY.search(head):
        scope = path[0][:-1]
        return Completion(path.start(), len(before), prefix=prefix, keys_of=scope if scope in KEYED else "")
    place = _Place.of(head)
    if place is None or "STRING" not in place.accepts:
        return Completion(quote, len(before))
    return _of_values(place, quote, end=len(before), prefix=prefix)


def _of_word(head: str, word: str) -> Completion:
    place, end = _Place.of(head), len(head) + len(word)
    scope = word.rpartition(".")[0]
    if place is None:
        return Completion(len(head), end)
    if scope in KEYED and "PATH" in place.accepts:
        return Completion(len(head), end, prefix=word[len(scope) + 1 :], keys_of=scope)
    found = _of_values(place, len(head), end=end, prefix="") if not word else Completion(len(head), end)
    fitting = tuple(one for one in place.suggestions() if one.text.startswith(word))
    return Completion(len(head), end, (*found.suggestions, *fitting), values_of=found.values_of)


def _of_values(place: "_Place", start: int, *, end: int, prefix: str) -> Completion:
    """Words or stored values of what stands left of an operator."""
    subject = place.subject()
    if isinstance(subject, Field) and subject.type is Type.WORD:
        words = tuple(Suggestion(f'"{word.value}"', Kind.VALUE) for word in subject.vocabulary)
        return Completion(start, end, tuple(one for one in words if one.text[1:].startswith(prefix)), prefix)
    return Completion(start, end, prefix=prefix, values_of=subject)


@dataclass(frozen=True, slots=True)
class _Place:
    """A place behind some text that a query may begin with.

    Attributes:
        head: The text.
        tokens: Its tokens.
        accepts: The terminals of the grammar that may come next.
    """

    head: str
    tokens: "tuple[Token, ...]"
    accepts: frozenset[str]

    @classmethod
    def of(cls, head: str) -> "_Place | None":
        """None: no query begins so."""
        from lark.exceptions import UnexpectedInput

        state: Any = parser().parse_interactive(head)
        try:
            tokens = tuple(state.exhaust_lexer())
        except (UnexpectedInput, JoinedWords):
            return None
        accepts: set[str] = state.accepts()
        return cls(head, tokens, frozenset(accepts))

    @property
    def _last(self) -> str:
        return str(self.tokens[-1]) if self.tokens else ""

    def suggestions(self) -> Iterator[Suggestion]:
        """Everything that fits and that no store has to be asked for."""
        if "PATH" in self.accepts:
            yield from self._names()
        elif "NAME" in self.accepts:
            known = ACROSS if self._last == ":" else AGGREGATES
            yield from (_call(name, "(x)") for name in known)
        for terminal in sorted(self.accepts - {"NAME", "PATH", "NUMBER", "STRING", "$END"}, key=spelled):
            word = spelled(terminal)
            yield Suggestion(word, Kind.KEYWORD if word.isalpha() else Kind.OPERATOR)

    def _names(self) -> Iterator[Suggestion]:
        if self._last == "across":
            yield from (Suggestion(axis, Kind.FIELD) for axis in _AXES)
            return
        if made := self._made():
            yield from (Suggestion(name, Kind.COLUMN) for name in made)
        else:
            yield from self._fields()
        yield from (Suggestion(f"{name}(", Kind.FUNCTION, signature(name)) for name in FUNCTIONS)
        if not made:
            yield from (Suggestion(f"{name}(", Kind.FUNCTION, f"{name}(x)") for name in HISTORIES)

    def _fields(self) -> Iterator[Suggestion]:
        """The fields of the rows first; in the selection, those of all other rows behind them."""
        entity = self.entity
        owners = {name: by_entity.get(entity) if entity else None for name, by_entity in FIELDS.items()}
        own = [(name, field) for name, field in owners.items() if field]
        others = [(name, next(iter(FIELDS[name].values()))) for name, field in owners.items() if not field]
        for name, field in [*own, *(() if entity and self._pipe() is not None else others)]:
            yield Suggestion(name, Kind.FIELD, f"{_kind_of(field)}. {field.meaning}")
        yield from (Suggestion(f"{scope}.", Kind.KEY, f"{kind}, by its key") for scope, (kind, _) in KEYED.items())

    @property
    def entity(self) -> Entity | None:
        """What the rows are, as far as the text says."""
        named = (scope_entity(str(token).partition(".")[0]) for token in self.tokens if token.type == "PATH")
        return next((entity for entity in named if entity), None)

    def _pipe(self) -> int | None:
        """Where the last `|` stands."""
        return next((one.start_pos for one in reversed(self.tokens) if str(one) == "|"), None)

    def _made(self) -> tuple[str, ...]:
        """The columns that the stages before have made; none: the rows are as stored."""
        pipe = self._pipe()
        if pipe is None:
            return ()
        try:
            return _columns(check(parse(self.head[:pipe])))
        except TqlError:
            return ()

    def subject(self) -> Field | tuple[str, str] | None:
        """What the value that comes next is compared with."""
        tokens: Sequence[Token] = self.tokens
        while len(tokens) > 1 and str(tokens[-1]) in {",", "["} and "[" in map(str, tokens):
            tokens = tokens[: -1 if str(tokens[-1]) == "[" else -2]
        if len(tokens) < 2 or str(tokens[-1]) not in {*_COMPARED_BY, "in"}:
            return None
        name = str(tokens[-2])
        scope, _, rest = name.partition(".")
        keyed = key_of(FieldRef(scope, rest))
        if keyed and keyed[0] in _WITH_TEXTS:
            return keyed[0], keyed[1].strip("\"'")
        owners = FIELDS.get(name) or {}
        own = owners.get(self.entity) if self.entity else None
        return own or next(iter(owners.values()), None)


def _kind_of(field: Field) -> str:
    words = ", ".join(word.value for word in field.vocabulary)
    return f"one of {words}" if words else field.type


def _columns(query: Typed) -> tuple[str, ...]:
    for stage in reversed(query.stages):
        match stage:
            case Select():
                return tuple(column.name for column in stage.columns)
            case Aggregate():
                stretch = (("step" if stage.every.in_steps else "time"),) if stage.every else ()
                return (*(column.name for column in stage.by), *stretch, *(one.name for one in stage.reduced))
            case Across():
                return (*(column.name for column in stage.by), stage.reduced.name)
            case _:
                continue
    return ()


def _call(name: str, arguments: str) -> Suggestion:
    return Suggestion(f"{name}()" if name in _WITHOUT_ARGUMENTS else f"{name}(", Kind.FUNCTION, f"{name}{arguments}")
