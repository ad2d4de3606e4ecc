"""From stages to what is returned: groups, columns, order and limit, in the order that rows flow through them."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rankscope.tql import nodes
from rankscope.tql.checked import Count, Operand, Ordering
from rankscope.tql.errors import Place, TqlTypeError, TqlUnsupported
from rankscope.tql.fields import Type
from rankscope.tql.formatting import format_value
from rankscope.tql.literals import name_of
from rankscope.tql.resolve import Resolver

MAX_LIMIT = 1_000_000
"""Most rows that a `limit` may ask for; pages are smaller."""

_AGGREGATES = (
    *("count", "sum", "avg", "min", "max", "p50", "p90", "p95", "p99", "quantile", "stddev", "first", "last"),
    *("distinct", "rate", "histogram"),
)


@dataclass
class Pipeline:
    """Collects what the stages ask for; each method takes the next stage."""

    resolver: Resolver
    wheres: list[nodes.Predicate] = field(default_factory=list[nodes.Predicate])
    group: tuple[Operand, ...] | None = None
    select: tuple[Operand, ...] | None = None
    order: tuple[Ordering, ...] = ()
    backwards: bool = False
    limit: int | None = None

    def add(self, stage: nodes.Stage) -> None:
        """Take the next stage.

        Raises:
            TqlTypeError: A name or number in it does not fit.
            TqlUnsupported: This version does not answer it, or not in this place.
        """
        _STAGES[type(stage)](self, stage)

    def add_where(self, stage: nodes.Where) -> None:
        """Keep its predicate for the row's condition."""
        self._only_before(stage, "where", grouped=True)
        self.wheres.append(stage.predicate)

    def add_select(self, stage: nodes.Select) -> None:
        """Return these fields only."""
        self._only_before(stage, "select", grouped=True, limited=False)
        if self.select is not None:
            raise _unsupported("a second select", stage.place)
        self.select = tuple(self.resolver.operand(_plain(item)) for item in stage.items)

    def add_aggregate(self, stage: nodes.Aggregate) -> None:
        """Count rows by fields."""
        self._only_before(stage, "an aggregate", grouped=True)
        for call in stage.calls:
            _refuse_aggregate(call)
        if len(stage.calls) > 1:
            raise _unsupported("more than one aggregate", stage.calls[1].place)
        if stage.every is not None:
            raise _unsupported("every", stage.every.place)
        if self.select is not None or self.order:
            raise _unsupported("count() after select or order by", stage.place)
        self.group = tuple(self.resolver.operand(_plain(value)) for value in stage.by)

    def add_across(self, stage: nodes.Across) -> None:
        """Refuse: comparisons across ranks come later."""
        raise _unsupported(f"across {format_value(stage.axis)}", stage.place)

    def add_order(self, stage: nodes.OrderBy) -> None:
        """Order by these, before the total order."""
        self._only_before(stage, "order by")
        if self.order:
            hint = "name all keys in one order by"
            raise TqlUnsupported("unsupported", "a second order by is not answered", place=stage.place, hint=hint)
        self.order = tuple(self._ordering(key.value, descending=key.descending) for key in stage.keys)

    def add_top(self, stage: nodes.Top) -> None:
        """The greatest few: an order and a limit."""
        self._only_before(stage, "top")
        if self.order:
            raise _unsupported("top after order by", stage.place)
        self.order = (self._ordering(stage.value, descending=True),)
        self.limit = _row_count(stage.count)

    def add_first(self, _stage: nodes.First) -> None:
        """One row."""
        self.limit = 1

    def add_last(self, stage: nodes.Last) -> None:
        """One row, from the other end."""
        self._only_before(stage, "last")
        self.backwards, self.limit = True, 1

    def add_limit(self, stage: nodes.Limit) -> None:
        """At most so many; the least of several counts."""
        count = _row_count(stage.count)
        self.limit = count if self.limit is None else min(self.limit, count)

    def _only_before(self, stage: nodes.Stage, what: str, *, grouped: bool = False, limited: bool = True) -> None:
        if grouped and self.group is not None:
            raise _unsupported(f"{what} after count()", stage.place)
        if limited and self.limit is not None:
            raise _unsupported(f"{what} after limit, top, first or last", stage.place)

    def _ordering(self, value: nodes.Value, *, descending: bool) -> Ordering:
        name = _plain(value)
        if name.name == "count":
            if self.group is None:
                message = "count is no field of a row; it is there behind count()"
                raise TqlTypeError("unknown_field", message, place=name.place)
            return Ordering(Count(), descending)
        operand = self.resolver.operand(name)
        if self.group is not None and operand not in self.group:
            message = f"{name_of(operand)} is not among what count() groups by"
            names = ("count", *(name_of(known) for known in self.group))
            raise TqlTypeError("unknown_field", message, place=name.place, expected=names)
        if operand.type is Type.ATTRIBUTE and self.group is None:
            raise _unsupported("ordering by an attribute, which may be text or number,", name.place)
        return Ordering(operand, descending)


def _unsupported(what: str, place: Place) -> TqlUnsupported:
    return TqlUnsupported("unsupported", f"{what} is not answered yet", place=place)


def _plain(value: nodes.Value) -> nodes.FieldRef:
    if isinstance(value, nodes.FieldRef):
        return value
    if isinstance(value, nodes.Call | nodes.Arithmetic | nodes.Negate):
        raise _unsupported(f"the expression {format_value(value)}", value.place)
    message = f"{format_value(value)} is no field"
    raise TqlTypeError("no_field", message, place=value.place, expected=("a field",))


def _refuse_aggregate(call: nodes.Call) -> None:
    """Raise unless it is `count()`."""
    if call.function == "count" and not call.arguments:
        return
    if call.function == "count":
        message = "count() takes no value: it counts rows"
        raise TqlTypeError("bad_arguments", message, place=call.place, hint="write count()")
    if call.function in _AGGREGATES:
        raise _unsupported(f"the aggregate {call.function}()", call.place)
    near = difflib.get_close_matches(call.function, _AGGREGATES, n=1)
    hint = f"did you mean {near[0]}()?" if near else ""
    message = f"there is no aggregate {call.function}()"
    raise TqlTypeError("unknown_aggregate", message, place=call.place, expected=_AGGREGATES, hint=hint)


def _row_count(number: nodes.Number) -> int:
    digits = number.text.lstrip("0")
    if number.unit or not number.text.isdigit() or not digits or len(digits) > len(str(MAX_LIMIT)):
        fits = False
    else:
        fits = int(digits) <= MAX_LIMIT
    if not fits:
        message = f"{format_value(number)} is no number of rows"
        raise TqlTypeError(
            "out_of_range",
            message,
            place=number.place,
            expected=(f"1 to {MAX_LIMIT}",),
            hint="write how many, as in 10",
        )
    return int(digits)


_STAGES: dict[type, Callable[[Pipeline, Any], None]] = {
    nodes.Where: Pipeline.add_where,
    nodes.Select: Pipeline.add_select,
    nodes.Aggregate: Pipeline.add_aggregate,
    nodes.Across: Pipeline.add_across,
    nodes.OrderBy: Pipeline.add_order,
    nodes.Top: Pipeline.add_top,
    nodes.First: Pipeline.add_first,
    nodes.Last: Pipeline.add_last,
    nodes.Limit: Pipeline.add_limit,
}
