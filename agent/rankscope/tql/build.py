"""From lark's tree to ours. The only module that knows the grammar's rule names."""

import difflib
import re
import string
from typing import TYPE_CHECKING, Any

from lark import Token, Tree
from lark.tree import Meta

from rankscope.tql import nodes
from rankscope.tql.errors import Place, TqlSyntaxError
from rankscope.tql.words import MAX_ITEMS, UNITS

if TYPE_CHECKING:
    from collections.abc import Callable

_LETTERS = f"{string.ascii_letters}_"
_PART = re.compile(r"""\.(?:([A-Za-z_][A-Za-z0-9_]*)|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t", "r": "\r"}


def place_of(meta: Meta | Token) -> Place:
    """Where a subtree or a token stands."""
    start, end = meta.start_pos, meta.end_pos
    return Place(start or 0, end or 0, meta.line or 1, meta.column or 1)


def _unquoted(token: Token, quoted: str, *, at: int = 0) -> str:
    """The value of a string in quotes, which starts `at` characters into the token."""

    def letter(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPED:
            whole = place_of(token)
            offset = at + 1 + found.start()
            before = str(token)[:offset]
            line, column = whole.line + before.count("\n"), whole.column + offset
            if "\n" in before:
                column = offset - before.rindex("\n")
            place = Place(whole.start + offset, whole.start + offset + 2, line, column)
            message = f"\\{found[1]} is no escape sequence"
            expected, hint = tuple(f"\\{key}" for key in "\\\"'ntr"), 'write \\\\ for a backslash, as in =~ "\\\\d+"'
            raise TqlSyntaxError("bad_escape", message, place=place, expected=expected, hint=hint)
        return _ESCAPED[found[1]]

    return _ESCAPE.sub(letter, quoted[1:-1])


class Builder:
    """Builds nodes bottom up; recursion is bounded because the depth was checked before.

    Each method is a rule of the grammar: it takes where the rule stands and what its parts became.
    """

    def build(self, tree: Tree[Token]) -> Any:
        """The node of a subtree."""
        parts = [self.build(part) if isinstance(part, Tree) else part for part in tree.children]
        make: Callable[..., Any] = getattr(self, tree.data)
        return make(tree.meta, *parts)

    def start(self, meta: Meta, selection: Any, /, *stages: Any) -> nodes.Query:
        """A whole query."""
        return nodes.Query(selection, stages, place=place_of(meta))

    def structure(self, meta: Meta, first: Any, /, *relations: Any) -> nodes.Structure:
        """Predicates of related spans."""
        return nodes.Structure(first, relations, place=place_of(meta))

    def trace_set(self, meta: Meta, first: Any, /, *relations: Any) -> nodes.TraceSet:
        """Predicates of spans of one trace."""
        return nodes.TraceSet(first, relations, place=place_of(meta))

    def relation(self, meta: Meta, operator: str, predicate: Any, /) -> nodes.Relation:
        """A structural operator and its right side."""
        return nodes.Relation(operator, predicate, place=place_of(meta))

    def set_relation(self, meta: Meta, operator: str, predicate: Any, /) -> nodes.Relation:
        """A set operator and its right side."""
        return nodes.Relation({"&&": "and", "||": "or"}.get(operator, operator), predicate, place=place_of(meta))

    def _operator(self, _meta: Meta, token: Token, /) -> str:
        return str(token)

    relation_operator = comparison_operator = match_operator = question = _operator
    set_operator = sum_operator = product_operator = direction = _operator

    def disjunction(self, meta: Meta, /, *parts: Any) -> nodes.Or:
        """`a or b`."""
        return nodes.Or(_without_tokens(parts), place=place_of(meta))

    def conjunction(self, meta: Meta, /, *parts: Any) -> nodes.And:
        """`a and b`."""
        return nodes.And(_without_tokens(parts), place=place_of(meta))

    def negation(self, meta: Meta, operand: Any, /) -> nodes.Not:
        """`not a`."""
        return nodes.Not(operand, place=place_of(meta))

    def comparison(self, meta: Meta, left: Any, operator: str, right: Any, /) -> nodes.Comparison:
        """`a < b`."""
        return nodes.Comparison(operator, left, right, place=place_of(meta))

    def match(self, meta: Meta, value: Any, operator: str, pattern: Any, /) -> nodes.Match:
        """`a =~ "b"`."""
        return nodes.Match(operator, value, pattern, place=place_of(meta))

    def contains(self, meta: Meta, value: Any, part: Any, /) -> nodes.Contains:
        """`a contains b`."""
        return nodes.Contains(value, part, place=place_of(meta))

    def membership(self, meta: Meta, value: Any, among: Any, /) -> nodes.Membership:
        """`a in b`."""
        return nodes.Membership(value, among, place=place_of(meta))

    def choices(self, meta: Meta, /, *items: Any) -> nodes.Choices:
        """`[a, b]`."""
        _refuse_long("list", items, meta)
        return nodes.Choices(items, place=place_of(meta))

    def interval(self, meta: Meta, low: Any, high: Any, /) -> nodes.Interval:
        """`a..b`."""
        return nodes.Interval(low, high, place=place_of(meta))

    def test(self, meta: Meta, question: str, value: Any, /) -> nodes.Test:
        """`exists(a)`."""
        return nodes.Test(question, value, place=place_of(meta))

    def arithmetic(self, meta: Meta, left: Any, operator: str, right: Any, /) -> nodes.Arithmetic:
        """`a + b`."""
        return nodes.Arithmetic(operator, left, right, place=place_of(meta))

    def negate(self, meta: Meta, operand: Any, /) -> nodes.Negate:
        """`-a`."""
        return nodes.Negate(operand, place=place_of(meta))

    def field(self, meta: Meta, token: Token, /) -> nodes.FieldRef:
        """A field with or without a scope; a quoted key loses its quotes."""
        scope, dot, _ = token.partition(".")
        if not dot:
            return nodes.FieldRef("", str(scope), place=place_of(meta))
        parts = [
            found[1] or _unquoted(token, found[2], at=found.start(2)) for found in _PART.finditer(token, len(scope))
        ]
        return nodes.FieldRef(scope, ".".join(parts), place=place_of(meta))

    def number(self, meta: Meta, token: Token, /) -> nodes.Number:
        """A number with or without a unit."""
        text = token.rstrip(_LETTERS)
        unit = token[len(text) :]
        if unit and unit not in UNITS:
            place = place_of(token)
            unit_place = Place(place.start + len(text), place.end, place.line, place.column + len(text))
            near = difflib.get_close_matches(unit, UNITS, n=1, cutoff=0.5)
            hint = f"did you mean {text}{near[0]}?" if near else f"write one of the units, as in {text}ms"
            raise TqlSyntaxError("unknown_unit", f"{unit} is no unit", place=unit_place, expected=UNITS, hint=hint)
        return nodes.Number(text, unit, place=place_of(meta))

    def text(self, meta: Meta, token: Token, /) -> nodes.Text:
        """A string."""
        return nodes.Text(_unquoted(token, str(token)), place=place_of(meta))

    def boolean(self, meta: Meta, word: Token, /) -> nodes.Boolean:
        """`true` or `false`."""
        return nodes.Boolean(word == "true", place=place_of(meta))

    def call(self, meta: Meta, function: Token, /, *arguments: Any) -> nodes.Call:
        """A function, or an aggregate behind `|`."""
        _refuse_long(f"{function}()", arguments, meta)
        return nodes.Call(str(function), arguments, place=place_of(meta))

    aggregate_call = call

    def where(self, meta: Meta, predicate: Any, /) -> nodes.Where:
        """`| where a`."""
        return nodes.Where(predicate, place=place_of(meta))

    def select(self, meta: Meta, /, *items: Any) -> nodes.Select:
        """`| select a, b`."""
        _refuse_long("select", items, meta)
        return nodes.Select(items, place=place_of(meta))

    def aggregates(self, meta: Meta, /, *calls: nodes.Call) -> tuple[nodes.Call, ...]:
        """The calls of an aggregate stage."""
        _refuse_long("stage", calls, meta)
        return calls

    def by(self, meta: Meta, /, *values: Any) -> tuple[nodes.Value, ...]:
        """What a stage groups by."""
        _refuse_long("by", values, meta)
        return values

    def every(self, _meta: Meta, size: nodes.Number, steps: Token | None = None, /) -> nodes.Every:
        """`every 10 steps` or `every 30s`."""
        return nodes.Every(size, steps is not None, place=size.place)

    def aggregate(self, meta: Meta, calls: tuple[nodes.Call, ...], /, *groups: Any) -> nodes.Aggregate:
        """`| count() by a every 10 steps`."""
        every = groups[-1] if groups and isinstance(groups[-1], nodes.Every) else None
        by: tuple[nodes.Value, ...] = groups[0] if groups and groups[0] is not every else ()
        return nodes.Aggregate(calls, by, every, place=place_of(meta))

    def across(self, meta: Meta, axis: Any, call: Any, by: Any = (), /) -> nodes.Across:
        """`| across rank: spread(a) by b`."""
        return nodes.Across(axis, call, by, place=place_of(meta))

    def order(self, meta: Meta, /, *keys: Any) -> nodes.OrderBy:
        """`| order by a desc`."""
        _refuse_long("order by", keys, meta)
        return nodes.OrderBy(keys, place=place_of(meta))

    def order_key(self, meta: Meta, value: Any, direction: str = "asc", /) -> nodes.OrderKey:
        """A value to order by, with its direction."""
        return nodes.OrderKey(value, direction == "desc", place=place_of(meta))

    def top(self, meta: Meta, count: Any, value: Any, /) -> nodes.Top:
        """`| top 10 by a`."""
        return nodes.Top(count, value, place=place_of(meta))

    def first(self, meta: Meta, /) -> nodes.First:
        """`| first`."""
        return nodes.First(place=place_of(meta))

    def last(self, meta: Meta, /) -> nodes.Last:
        """`| last`."""
        return nodes.Last(place=place_of(meta))

    def limit(self, meta: Meta, count: Any, /) -> nodes.Limit:
        """`| limit 10`."""
        return nodes.Limit(count, place=place_of(meta))


def _refuse_long(what: str, items: tuple[Any, ...], meta: Meta, /) -> None:
    if len(items) > MAX_ITEMS:
        message = f"the {what} has {len(items)} items, the limit is {MAX_ITEMS}"
        raise TqlSyntaxError("list_too_long", message, place=place_of(meta), hint="write fewer, or ask in two queries")


def _without_tokens(parts: tuple[Any, ...]) -> tuple[nodes.Predicate, ...]:
    """The predicates of a chain; the words between them are filtered here."""
    return tuple(part for part in parts if not isinstance(part, Token))
