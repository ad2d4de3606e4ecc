"""The first look: every node and every part of it is on the list, and every name is one of a view, or of the statement.

ClickHouse lets an expression name a table where none is expected: the right side of IN. So a list there holds constants
only, and a name that stands for no column and no alias is refused here, whatever the store would make of it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope_query_api.errors import InvalidQueryError, nearest_hint
from rankscope_query_api.sql import hints
from rankscope_query_api.sql.allowed import BOUND_TYPE, CAST_TYPE, FUNCTION_NODES, NAME, NODES, UNITS, WORDS
from rankscope_query_api.sql.functions import BY_LOWER_CASE
from rankscope_query_api.sql.reading import position_of
from rankscope_query_api.sql.shapes import QUERIES, is_constant, is_given_before, is_query, is_select
from rankscope_query_api.sql.views import VIEWS

RESERVED = "rs_"
"""Beginning of the names that the service itself gives."""

_CLAUSES = {
    "from_": "FROM",
    "with_": "WITH",
    "except_": "EXCEPT",
    "db": "a database before a name",
    "scalar": "a value behind WITH",
}
"""Parts of nodes whose names are not the words of the language."""


@dataclass(frozen=True, slots=True)
class Names:
    """What the names of a statement stand for.

    Attributes:
        views: Views that it reads, in order of their first mention.
        shared: Names that WITH gives.
        tables: What may stand before a column's dot.
        bound: Type by name of the parameters.
    """

    views: tuple[str, ...]
    shared: frozenset[str]
    tables: frozenset[str]
    bound: dict[str, str]


@dataclass
class Checker:
    """Looks at one tree.

    Attributes:
        text: What was sent, for positions.
        tree: What it was read as.
    """

    text: str
    tree: Expr
    _bound: dict[str, str] = field(default_factory=dict[str, str])

    def names(self) -> Names:
        """What its names stand for, once all of it is seen to be allowed.

        Raises:
            InvalidQueryError: Something is not on the list, or a name is unknown; the position says where.
        """
        if not isinstance(self.tree, (*QUERIES, exp.Subquery)):
            raise self._refused(self.tree, f"{_named(self.tree)} is no SELECT", code="not_allowed")
        for node in self.tree.walk():
            self._allow(node)
        return self._resolved()

    def _allow(self, node: Expr) -> None:
        parts = NODES.get(type(node))
        if parts is None:
            raise self._refused(node, f"{_named(node)} is not for statements here", code="not_allowed")
        for name, value in node.args.items():
            if value is None or value is False or value == []:
                continue
            if name not in parts:
                clause = _CLAUSES.get(name, name.strip("_").upper())
                hint = _UNION_HINT if isinstance(node, exp.SetOperation) else None
                held = next((one for one in _listed(value) if isinstance(one, Expr)), exp.Null())
                raise self._refused(held, f"{clause} is not for statements here", hint=hint, code="not_allowed")
            self._allow_word(node, name, value=value)
        look = _LOOKS.get(type(node))
        if look is not None:
            look(self, node)

    def _allow_word(self, node: Expr, name: str, *, value: object) -> None:
        """A part that is a text and no node must be one of a few words; names and literals are looked at as such."""
        words = WORDS.get((type(node), name))
        if words is not None and isinstance(value, str):
            if value.upper() not in words:
                raise self._refused(node, f"{value} is not for statements here", code="not_allowed")
            return
        if not all(isinstance(one, Expr | bool) or type(node) in _OWN_TEXT for one in _listed(value)):
            raise self._refused(node, f"{_named(node)} is not for statements here", code="not_allowed")

    def look_at_identifier(self, node: Expr) -> None:
        """A name is ASCII, and none of the service's own."""
        name = node.this
        if not isinstance(name, str) or not NAME.fullmatch(name) or name.lower().startswith(RESERVED):
            raise self._refused(
                node,
                f"{str(name)[:60]!r} cannot be a name here",
                hint=f"names are of letters, digits and _, up to 128, and do not begin with {RESERVED}",
                code="bad_name",
            )

    def look_at_function(self, node: Expr) -> None:
        """A function is on the list."""
        name = node.this
        if not isinstance(name, str) or name.lower() not in BY_LOWER_CASE:
            shown = str(name)[:60]
            what, hint = f"{shown!r} is no function for statements", hints.of_function(shown)
            raise self._refused(node, what, hint=hint, code="unknown_function")

    def look_at_literal(self, node: Expr) -> None:
        """A number is one that its type holds: ClickHouse reads a longer one as a float, without a word."""
        if node.args.get("is_string"):
            return
        text = str(node.this)
        try:
            fits = int(text) <= 2**63 if isinstance(node.parent, exp.Neg) else int(text) < 2**64
        except ValueError:
            fits = text.isascii() and math.isfinite(_float(text))
        if not fits:
            raise self._refused(
                node.parent or node,
                f"{text[:60]} is beyond every number there is",
                hint="integers go from -2^63 to 2^64 - 1",
                code="out_of_range",
            )

    def look_at_placeholder(self, node: Expr) -> None:
        """A parameter has a name and one type."""
        kind = node.args.get("kind")
        name = node.this.name if isinstance(node.this, Expr) else ""
        written = kind.sql("clickhouse") if isinstance(kind, exp.DataType) else str(kind)
        if not NAME.fullmatch(name) or not BOUND_TYPE.fullmatch(written):
            raise self._refused(
                node,
                f"{{{name}:{written}}} is no parameter",
                hint="write {name:Type}, Type being Int8 to UInt64, Float32, Float64, String, Bool, Nullable or Array",
                code="bad_parameter",
            )
        if self._bound.setdefault(name, written) != written:
            raise self._refused(node, f"{name} is {self._bound[name]} and {written}", code="bad_parameter")

    def look_at_cast(self, node: Expr) -> None:
        """A cast goes to a type that the answer can hold."""
        kind = node.args["to"]
        if not isinstance(kind, exp.DataType) or not CAST_TYPE.fullmatch(kind.sql("clickhouse")):
            shown = kind.sql("clickhouse")[:60]
            raise self._refused(node, f"{shown} is no type for a cast here", hint=_TYPES_HINT, code="not_allowed")

    def look_at_interval(self, node: Expr) -> None:
        """An interval is a whole number of a unit."""
        amount, unit = node.this, node.args.get("unit")
        is_count = isinstance(amount, exp.Literal) and str(amount.this).isdecimal() and len(str(amount.this)) < 19
        if not is_count or not isinstance(unit, exp.Var) or unit.name.upper() not in UNITS:
            raise self._refused(node, "an interval is a number and a unit", hint="INTERVAL 5 MINUTE", code="syntax")

    def look_at_in(self, node: Expr) -> None:
        """The right side of IN holds constants, is a list that is bound, or a SELECT."""
        held = node.args.get("field")
        query = node.args.get("query")
        listed = _nodes(node, "expressions")
        fits = (held is None or isinstance(held, exp.Placeholder)) and (query is None or is_select(query))
        if not fits or not all(is_constant(one) for one in listed):
            raise self._refused(
                node,
                "IN needs constants, a parameter or one SELECT in brackets on its right side",
                hint="write `has(list, x)` for a column that is a list, and `x = y` for one value",
                code="not_allowed",
            )

    def look_at_count(self, node: Expr) -> None:
        """LIMIT and OFFSET are numbers or parameters."""
        count = node.args.get("expression")
        if not (isinstance(count, exp.Placeholder) or (isinstance(count, exp.Literal) and str(count.this).isdecimal())):
            raise self._refused(node, "LIMIT and OFFSET are whole numbers or parameters", code="syntax")

    def look_at_select(self, node: Expr) -> None:
        """It selects something, and a JOIN stands behind a FROM."""
        if not node.args.get("expressions"):
            raise self._refused(node, "SELECT and what it selects are expected", code="syntax")
        if node.args.get("joins") and node.args.get("from_") is None:
            raise self._refused(node, "a JOIN needs a FROM before it", code="syntax")

    def look_at_group(self, node: Expr) -> None:
        """Behind GROUP BY stands something."""
        if not node.args.get("expressions") and not node.args.get("all"):
            raise self._refused(node, "GROUP BY needs what to group by", code="syntax")

    def look_at_source(self, node: Expr) -> None:
        """What is read is a name or a SELECT in brackets."""
        if not isinstance(node.this, exp.Table | exp.Subquery):
            name = _named(node.this)
            hint = hints.of_source(name) or _VIEWS_HINT
            raise self._refused(node, f"{name} cannot be read from", hint=hint, code="not_allowed")

    def look_at_join(self, node: Expr) -> None:
        """A JOIN says what it goes by, or is CROSS, as a comma is."""
        self.look_at_source(node)
        if not (node.args.get("on") or node.args.get("using") or str(node.args.get("kind")).upper() == "CROSS"):
            raise self._refused(node, "a JOIN needs ON or USING", hint="… USING (run_id, rank)", code="syntax")

    def look_at_table(self, node: Expr) -> None:
        """A view or a name of the statement's own; never a function."""
        if not isinstance(node.this, exp.Identifier):
            raise self._refused(node, f"{_named(node.this)} cannot be read from", hint=_VIEWS_HINT, code="unknown_view")

    def look_at_column(self, node: Expr) -> None:
        """A column is a name or a star."""
        if not isinstance(node.this, exp.Identifier | exp.Star):
            raise self._refused(node, "a dot needs a name behind it", hint="tupleElement(x, 1)", code="syntax")

    def look_at_star(self, node: Expr) -> None:
        """A star is a column of its own, or the argument of `count`."""
        around = node.parent.parent if isinstance(node.parent, exp.Column) else node.parent
        if not isinstance(around, exp.Select | exp.AnonymousAggFunc):
            raise self._refused(node, "a star is no value", hint="name the column", code="syntax")

    def look_at_subject(self, node: Expr) -> None:
        """What a WITH or an EXISTS holds is a SELECT."""
        if not is_query(node.this):
            raise self._refused(node, "a SELECT in brackets is expected here", hint=_WITH_HINT, code="not_allowed")

    def look_at_is(self, node: Expr) -> None:
        """IS asks for NULL only."""
        if not isinstance(node.args["expression"], exp.Null | exp.Boolean):
            raise self._refused(node, "IS needs NULL on its right side", code="syntax")

    def look_at_lambda(self, node: Expr) -> None:
        """A lambda is an argument, and its own arguments are names."""
        names = _nodes(node, "expressions")
        if not isinstance(node.parent, FUNCTION_NODES) or not all(isinstance(one, exp.Identifier) for one in names):
            raise self._refused(node, "-> stands in the arguments of a function", hint="arrayMap(x -> x + 1, list)")

    def _resolved(self) -> Names:
        shared = self._shared()
        tables = list(self.tree.find_all(exp.Table))
        views = tuple(dict.fromkeys(table.name for table in tables if table.name not in shared))
        for table in tables:
            if table.name not in shared and table.name not in VIEWS:
                raise self._refused(
                    table,
                    f"no view {table.name!r}",
                    hint=nearest_hint(table.name, [*VIEWS, *shared], otherwise=_VIEWS_HINT),
                    expected=sorted([*VIEWS, *shared]),
                    code="unknown_view",
                )
            if table.name in shared and not is_given_before(shared[table.name], table):
                raise self._refused(
                    table, f"{table.name!r} is not given where it is read", hint=_WITH_HINT, code="unknown_view"
                )
        called = {table.alias_or_name for table in tables}
        called |= {one.alias for one in self.tree.find_all(exp.Subquery) if one.alias}
        self._know_columns(views, called)
        return Names(views, frozenset(shared), frozenset(called), self._bound)

    def _shared(self) -> dict[str, exp.CTE]:
        """What WITH gives, by name."""
        found: dict[str, exp.CTE] = {}
        for cte in self.tree.find_all(exp.CTE):
            if cte.alias in found or cte.alias in VIEWS:
                raise self._refused(cte.args["alias"], f"WITH names {cte.alias!r} again", hint="give it another name")
            found[cte.alias] = cte
        return found

    def _know_columns(self, views: Iterable[str], called: Iterable[str]) -> None:
        """Every name in an expression is a column of a view that is read, or given in the statement."""
        known = {column.name for view in views for column in VIEWS[view].columns}
        known |= {one.alias for one in self.tree.find_all(exp.Alias)}
        known |= {name.name for one in self.tree.find_all(exp.Lambda) for name in one.expressions}
        for node in self._columns():
            if node.name not in known:
                before = node.table if isinstance(node, exp.Column) else ""
                hint = hints.of_column(node.name, before, known=known, text=self.text)
                raise self._refused(node, f"no column {node.name!r} in what is read", hint=hint, code="unknown_column")
            table = node.args.get("table") if isinstance(node, exp.Column) else None
            if table is not None and table.name not in set(called):
                hint = nearest_hint(table.name, called, otherwise="name a view that FROM or JOIN names")
                raise self._refused(node, f"nothing is called {table.name!r} here", hint=hint, code="unknown_view")

    def _columns(self) -> Iterator[Expr]:
        for node in self.tree.find_all(exp.Column):
            if isinstance(node.this, exp.Identifier):
                yield node
            elif node.args.get("table") is not None and isinstance(node.parent, FUNCTION_NODES):
                raise self._refused(node, "a star with a name before it is no argument", code="syntax")
        for join in self.tree.find_all(exp.Join):
            yield from _nodes(join, "using")

    def _refused(
        self,
        node: Expr,
        message: str,
        *,
        hint: str | None = None,
        expected: list[str] | None = None,
        code: str = "not_allowed",
    ) -> InvalidQueryError:
        return InvalidQueryError(
            message,
            hint=hint or "query_api/VIEWS.md says what a statement may hold",
            position=position_of(self.text, node),
            expected=expected,
            code=code,
        )


_VIEWS_HINT = f"the views are {', '.join(VIEWS)}"
_UNION_HINT = "write SELECT * FROM (… UNION ALL …) ORDER BY …: ClickHouse takes these as the last SELECT's own"
_WITH_HINT = "WITH name AS (SELECT …)"
_TYPES_HINT = (
    "Int8 to UInt64, Float32, Float64, String, Bool, Date, DateTime, DateTime64(0..9), Nullable or Array of it"
)

_OWN_TEXT = (exp.Identifier, exp.Literal, exp.Var, exp.DataType, exp.Placeholder, *FUNCTION_NODES)
"""Nodes with a text of their own, each of which is looked at."""

_LOOKS: dict[type[Expr], Callable[[Checker, Expr], None]] = {
    exp.Identifier: Checker.look_at_identifier,
    exp.Literal: Checker.look_at_literal,
    exp.Placeholder: Checker.look_at_placeholder,
    exp.Cast: Checker.look_at_cast,
    exp.Interval: Checker.look_at_interval,
    exp.In: Checker.look_at_in,
    exp.Limit: Checker.look_at_count,
    exp.Offset: Checker.look_at_count,
    exp.Select: Checker.look_at_select,
    exp.Group: Checker.look_at_group,
    exp.From: Checker.look_at_source,
    exp.Join: Checker.look_at_join,
    exp.Table: Checker.look_at_table,
    exp.Column: Checker.look_at_column,
    exp.Star: Checker.look_at_star,
    exp.CTE: Checker.look_at_subject,
    exp.Subquery: Checker.look_at_subject,
    exp.Exists: Checker.look_at_subject,
    exp.Is: Checker.look_at_is,
    exp.Lambda: Checker.look_at_lambda,
    **dict.fromkeys(FUNCTION_NODES, Checker.look_at_function),
}


def _listed(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _nodes(node: Expr, part: str) -> list[Expr]:
    """The nodes of a part that is a list."""
    return cast("list[Expr]", node.args.get(part) or [])


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf


def _named(node: object) -> str:
    """What a reader would call a node: its keyword."""
    if isinstance(node, FUNCTION_NODES):
        return f"{str(node.this)[:60]}(…)"
    return node.key.upper() if isinstance(node, Expr) else repr(node)[:60]
