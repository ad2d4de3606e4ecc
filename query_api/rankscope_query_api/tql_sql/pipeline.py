"""From a typed query to the rows that answer it: its source, then one stage after the other.

A stage adds to the frame of the stage before where it can, so that a plain query stays one SELECT; it puts a SELECT
around it where it must: behind a limit, and around groups.
"""

from collections.abc import Callable
from typing import Any

from sqlglot.expressions.core import Expr

from rankscope.tql import typed
from rankscope_query_api.tql_sql.across import across
from rankscope_query_api.tql_sql.aggregates import reduced
from rankscope_query_api.tql_sql.answer import of_column
from rankscope_query_api.tql_sql.frames import Frame
from rankscope_query_api.tql_sql.grouping import grouped, key_of_groups, stretches
from rankscope_query_api.tql_sql.order import row_order, value_order
from rankscope_query_api.tql_sql.predicates import condition, keep
from rankscope_query_api.tql_sql.scope import Scope
from rankscope_query_api.tql_sql.sources import source
from rankscope_query_api.tql_sql.structure import in_traces, joined, related


def frame_of(query: typed.Typed, scope: Scope) -> Frame:
    """The rows that a query asks for.

    Args:
        query: What `rankscope.tql.check` made of it.
        scope: An empty scope of its entity.
    """
    order = list(row_order(query.entity))
    frame = Frame(scope, scope, scope.rows, order, list(order), None, is_in_order=True)
    frame.conditions = _source(query.source, scope)
    for stage in query.stages:
        frame = _STAGES[type(stage)](frame, stage)
    return frame


def _source(source_of: typed.Source, scope: Scope) -> list[Expr]:
    """What the rows of the source must fulfil."""
    match source_of:
        case typed.Related():
            return related(source_of, scope)
        case typed.Traces():
            return [in_traces(source_of, scope)]
        case typed.Rows():
            return [keep(source_of.condition, scope), *joined(source_of.companions, scope)]


def _filter(frame: Frame, stage: typed.Filter) -> Frame:
    is_bottom = frame.scope is frame.rows and frame.limit is None and not frame.cuts
    frame.cut()
    frame.conditions.append((keep if is_bottom else condition)(stage.condition, frame.scope))
    return frame


def _select(frame: Frame, stage: typed.Select) -> Frame:
    """Later stages name the columns; no SELECT is put around, what they stand for is still there."""
    frame.shown = tuple(of_column(named, frame.scope, made=frame.made) for named in stage.columns)
    frame.scope = frame.scope.behind({named.name: source(named.value, frame.scope) for named in stage.columns})
    return frame


def _order(frame: Frame, stage: typed.Order) -> Frame:
    frame.cut()
    keys = [
        made
        for key in stage.keys
        for made in value_order(source(key.value, frame.scope), is_descending=key.is_descending)
    ]
    frame.keys = [*keys, *frame.keys]
    return frame


def _limit(frame: Frame, stage: typed.Limit) -> Frame:
    if stage.is_last:
        frame.cut()
        frame.keys, frame.is_in_order = [key.reversed() for key in frame.keys], False
    frame.limit = stage.count if frame.limit is None else min(frame.limit, stage.count)
    return frame


def _aggregate(frame: Frame, stage: typed.Aggregate) -> Frame:
    keys = [key_of_groups(named, frame) for named in stage.by]
    if stage.every is not None:
        keys.append(stretches(stage.every, frame.rows))
    made = [reduced(one, frame.scope, rows=frame.rows, order=frame.order) for one in stage.reduced]
    return grouped(frame, keys, made=list(zip(stage.reduced, made, strict=True)))


_STAGES: dict[type, Callable[[Frame, Any], Frame]] = {
    typed.Filter: _filter,
    typed.Select: _select,
    typed.Aggregate: _aggregate,
    typed.Across: across,
    typed.Order: _order,
    typed.Limit: _limit,
}
