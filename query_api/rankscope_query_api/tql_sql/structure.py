"""Rows by other rows: spans by their relatives, traces by their spans, rows by what another table has beside them.

All of it is set membership, `(keys) IN (SELECT keys …)`: no row is doubled by a copy of another one, and what the
rows themselves hold stays as it is. Ancestors are walked up from the spans that a query may return, so that the work
follows their number and not that of the trace; the walk ends after `MOST_LEVELS`, and so do cycles.

In a chain the left side of an operator is all that stands before it. It is written once, and outside of the walk, whose
every level is run anew: written twice, it doubled the SQL and the work with each operator (20 of them never ended).
Where it would only narrow what is looked at, its last condition alone stands in for it.

A span whose parent never arrived has no known parent, ancestor or place in the tree: it is no child and no
descendant, and it is not said to be none either (`!>`, `!>>`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import Entity
from rankscope.tql.typed import Companion, Condition, Related, Traces
from rankscope_proto import names
from rankscope_query_api.tql_sql.expressions import (
    alias,
    all_of,
    any_of,
    call,
    called,
    column,
    from_query,
    number,
    rows_of,
    step,
)
from rankscope_query_api.tql_sql.predicates import condition
from rankscope_query_api.tql_sql.scope import Scope

MOST_LEVELS = 128
"""How many levels up relatives are looked for."""

_IN_STEP_TRACE = names.SPAN_FLAGS["in_step_trace"]
_SPAN, _PARENT = "span_id", "parent_span_id"


def joined(companions: Sequence[Companion], scope: Scope) -> list[Expr]:
    """The semi-joins of rows with rows of other entities of the same run, launch, rank and step."""
    found = [_beside(companion, scope) for companion in companions]
    if companions and scope.entity is Entity.SPAN:
        found.insert(0, _in_step_trace())
    return found


def _beside(companion: Companion, scope: Scope) -> Expr:
    other = scope.companion(companion.entity)
    parts = [exp.NEQ(this=step(), expression=number(-1)), condition(companion.condition, other)]
    if companion.entity is Entity.SPAN:
        parts.append(_in_step_trace())
    return _is_in(_place(), other.rows().where(all_of(parts), copy=False).select(*_place(), copy=False))


def _place() -> list[Expr]:
    return [column("run_id"), column("launch_id"), column("rank"), step()]


def _in_step_trace() -> Expr:
    return exp.NEQ(this=call("bitAnd", column("flags"), number(_IN_STEP_TRACE)), expression=number(0))


def _is_in(keys: Sequence[Expr], found: exp.Select) -> Expr:
    return exp.In(this=exp.Tuple(expressions=list(keys)), query=exp.Subquery(this=found))


def _not(part: Expr) -> Expr:
    return exp.Not(this=exp.Paren(this=part))


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans as a set: those of which a condition holds.

    Attributes:
        scope: What project and run they are of.
        condition: Makes the condition, for a SELECT of their own.
        own: The condition without that on relatives; what it is true of has all these spans among it.
        level: How many relations lie within the condition; it tells one walk of a statement from another.
    """

    scope: Scope
    condition: Callable[[Scope], list[Expr]]
    own: Callable[[Scope], list[Expr]]
    level: int = 0

    @property
    def wider(self) -> "_Spans":
        """Those of which the condition holds but for their relatives."""
        return _Spans(self.scope, self.own, self.own)

    def select(self, *keys: Expr, where: Sequence[Expr] = ()) -> exp.Select:
        """A SELECT of keys of these spans."""
        scope = self.scope.companion(Entity.SPAN)
        parts = [*self.condition(scope), *where]
        return scope.rows().where(all_of(parts), copy=False).select(*keys, copy=False)

    def of(self, *names_of: str, where: Sequence[Expr] = ()) -> exp.Select:
        """A SELECT of the ids that tell where these spans belong, and of further columns."""
        return self.select(*self.keys(*names_of), where=where)

    def keys(self, *names_of: str) -> list[Expr]:
        """The ids of a trace, and further columns; the run's is one where a query may read several."""
        run = ["run_id"] if self.scope.run is None else []
        return [column(name) for name in (*run, "trace_hi", "trace_lo", *names_of)]


def _of(node: Condition) -> Callable[[Scope], list[Expr]]:
    return lambda scope: [condition(node, scope)]


def _plain(node: Condition, scope: Scope) -> _Spans:
    """The spans of a condition that asks for no relatives."""
    return _Spans(scope, _of(node), _of(node))


def in_traces(traces: Traces, scope: Scope) -> Expr:
    """Which traces: with a span of each, of one, or of the one and none of the other."""
    spans = _plain(traces.first, scope)
    found = _is_in(spans.keys(), spans.of())
    for word, node in traces.relations:
        further = _plain(node, scope)
        one = _is_in(further.keys(), further.of())
        match word:
            case "and":
                found = exp.And(this=found, expression=one)
            case "or":
                found = exp.Paren(this=exp.Or(this=found, expression=one))
            case "without":
                found = exp.And(this=found, expression=_not(one))
    return found


def related(source: Related, scope: Scope) -> list[Expr]:
    """Which spans: those of the last condition, by their relatives among those before."""
    left = _plain(source.first, scope)
    for level, relation in enumerate(source.relations, 1):
        left = _related_to(left, relation.operator, right=_plain(relation.condition, scope), level=level)
    return left.condition(scope)


def _related_to(left: _Spans, operator: str, *, right: _Spans, level: int) -> _Spans:
    """The right spans that have, or have not, such a relative among the left ones."""
    relatives = _RELATIVES[operator]
    return _Spans(left.scope, lambda scope: [*right.own(scope), *relatives(left, right)], right.own, level)


def _child(left: _Spans, right: _Spans) -> list[Expr]:
    del right
    return [_has_parent(), _is_in(left.keys(_PARENT), left.of(_SPAN))]


def _parent(left: _Spans, right: _Spans) -> list[Expr]:
    del right
    return [_is_in(left.keys(_SPAN), left.of(_PARENT))]


def _has_parent() -> Expr:
    return exp.NEQ(this=column(_PARENT), expression=number(0))


def _is_root() -> Expr:
    return exp.EQ(this=column(_PARENT), expression=number(0))


def _sibling(left: _Spans, right: _Spans) -> list[Expr]:
    """Those with another span of the left beside them: of each parent the least and the greatest id tell."""
    keys = left.keys(_PARENT)
    ends = [alias(call(name, column(_SPAN)), f"{name}_span") for name in ("min", "max")]
    beside = left.select(*_named(keys, "beside"), *ends, where=[_has_parent()]).group_by(*keys, copy=False)
    own = right.of(_PARENT, _SPAN, where=[_has_parent()])
    on = [exp.EQ(this=key.copy(), expression=column(f"beside_{at}")) for at, key in enumerate(keys)]
    found = exp.Select(expressions=left.keys(_SPAN), from_=from_query(own, "own"))
    found.append("joins", exp.Join(this=called(beside, "siblings"), on=all_of(on)))
    is_another = [exp.NEQ(this=column(f"{name}_span"), expression=column(_SPAN)) for name in ("min", "max")]
    return [_is_in(left.keys(_SPAN), found.where(any_of(is_another), copy=False))]


def _no_child(left: _Spans, right: _Spans) -> list[Expr]:
    everything = _everything(left.scope)
    parents = _is_in(left.keys(_SPAN), right.of(_PARENT))
    has_known_parent = _is_in(left.keys(_PARENT), everything.of(_SPAN, where=[parents]))
    is_child = _is_in(left.keys(_PARENT), left.of(_SPAN))
    known = exp.And(this=has_known_parent, expression=_not(is_child))
    return [exp.Paren(this=exp.Or(this=_is_root(), expression=known))]


def _everything(scope: Scope) -> _Spans:
    return _Spans(scope, lambda _: [], lambda _: [])


def _ancestor(left: _Spans, right: _Spans) -> list[Expr]:
    del right
    seeds = left.select(*_named(left.keys(_PARENT), "up"), alias(number(0), "level"), where=[_has_parent()])
    walk = _Walk(left, seeds)
    above = walk.reached(exp.Select(expressions=walk.here()))
    return [_is_in(left.keys(_SPAN), above.where(_is_near(), copy=False))]


def _descendant(left: _Spans, right: _Spans) -> list[Expr]:
    in_a_trace_of_both = _is_in(left.keys(), left.wider.of())
    walk = _upwards(left, right, where=[in_a_trace_of_both])
    found = walk.reached(exp.Select(expressions=walk.origin()))
    found.where(all_of([_is_near(), _is_in(walk.here(), left.of(_SPAN))]), copy=False)
    return [_is_in(left.keys(_SPAN), found)]


def _no_descendant(left: _Spans, right: _Spans) -> list[Expr]:
    walk = _upwards(left, right, where=[])
    is_top = exp.EQ(this=walk.here()[-1], expression=number(0))
    is_below = exp.And(this=_is_near(), expression=_is_in(walk.here(), left.of(_SPAN)))
    found = walk.reached(exp.Select(expressions=walk.origin())).group_by(*walk.origin(), copy=False)
    found.having(exp.And(this=_greatest_is(is_top, 1), expression=_greatest_is(is_below, 0)), copy=False)
    return [exp.Paren(this=exp.Or(this=_is_root(), expression=_is_in(left.keys(_SPAN), found)))]


def _greatest_is(value: Expr, wanted: int) -> Expr:
    return exp.EQ(this=call("max", value), expression=number(wanted))


def _is_near() -> Expr:
    """True of a row of a walk that names an ancestor; the level beyond may only say that there is none."""
    return exp.LT(this=column("level"), expression=number(MOST_LEVELS))


def _upwards(left: _Spans, right: _Spans, *, where: Sequence[Expr]) -> "_Walk":
    """The walk up from each of the right spans."""
    more = [alias(column(_SPAN), "origin"), alias(number(0), "level")]
    seeds = right.select(*_named(right.keys(_PARENT), "up"), *more, where=[_has_parent(), *where])
    return _Walk(left, seeds, with_origin=True)


def _named(keys: Sequence[Expr], prefix: str) -> list[Expr]:
    return [alias(key, f"{prefix}_{at}") for at, key in enumerate(keys)]


@dataclass(frozen=True, slots=True)
class _Walk:
    """A walk up from some spans to their ancestors, level by level.

    Attributes:
        left: The spans that are looked for.
        seeds: Ids of the trace and of the parent to go on with, where each walk begins.
        with_origin: Whether walks stay apart by the span they began at.
    """

    left: _Spans
    seeds: exp.Select
    with_origin: bool = False

    @property
    def name(self) -> str:
        """What the walk is called."""
        return f"walk_{self.left.level}"

    def here(self) -> list[Expr]:
        """Where the walk is: the trace's ids, and the parent to go on with; 0: there is none."""
        return [column(f"up_{at}") for at in range(len(self.left.keys(_SPAN)))]

    def origin(self) -> list[Expr]:
        """Where it began: the trace's ids, and the span."""
        return [*self.here()[:-1], column("origin")]

    def reached(self, select: exp.Select) -> exp.Select:
        """A SELECT from all that was come by."""
        walked = exp.Union(this=self.seeds, expression=self._level(), distinct=False)
        name = exp.TableAlias(this=exp.Identifier(this=self.name, quoted=False))
        select.set("with_", exp.With(expressions=[exp.CTE(this=walked, alias=name)], recursive=True))
        select.set("from_", exp.From(this=rows_of(self.name)))
        return select

    def _level(self) -> exp.Select:
        spans = [column(f"edge_{at}") for at in range(len(self.here()))]
        on: list[Expr] = [
            exp.EQ(this=key.copy(), expression=name) for key, name in zip(spans, self.here(), strict=True)
        ]
        # Without names of their own: one called as a column of the walk would be meant by ON instead of that.
        shown = [*spans[:-1], column("edge_parent"), *([column("origin")] if self.with_origin else [])]
        shown.append(exp.Add(this=column("level"), expression=number(1)))
        level = exp.Select(expressions=shown, distinct=exp.Distinct(), from_=from_query(self._edges(), "edges"))
        level.append("joins", exp.Join(this=rows_of(self.name), on=all_of(on)))
        return level.where(_is_near(), copy=False)

    def _edges(self) -> exp.Select:
        """The spans that the level before named as parents, with their own parents."""
        everything = _everything(self.left.scope)
        last = exp.Select(expressions=self.here()[-1:], from_=exp.From(this=rows_of(self.name)))
        named = exp.In(this=column(_SPAN), query=exp.Subquery(this=last))
        shown = [*_named(everything.keys(_SPAN), "edge"), alias(column(_PARENT), "edge_parent")]
        return everything.select(*shown, where=[named])


_RELATIVES: dict[str, Callable[[_Spans, _Spans], list[Expr]]] = {
    ">": _child,
    ">>": _descendant,
    "<": _parent,
    "<<": _ancestor,
    "~": _sibling,
    "!>": _no_child,
    "!>>": _no_descendant,
}
