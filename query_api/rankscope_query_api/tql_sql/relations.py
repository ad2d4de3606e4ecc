"""Runs, launches, places, modules, traces and children as rows of one each, made from the tables.

A row of a table names them by key and does not hold what they are. The statements are constants of this repository,
handed on as text: parsing and writing one took as long as all the rest of a query. Every SELECT that reads a table
compares project and run there. What is missing is NULL, of a list empty.

Spans may be stored twice, interrupted and finished: everything here counts a span id once, as the list of traces does.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound

import functools

from sqlglot import exp
from sqlglot.expressions.core import Expr

from rankscope.tql.fields import Origin
from rankscope_proto.names import ProcessRole, RunStatus, SpanStatus
from rankscope_proto.sections_spans import SPAN_END
from rankscope_query_api.tql_sql.guard import check_statement
from rankscope_query_api.tql_sql.matches import MATCHES, SCOPED, UNMEASURED
from rankscope_query_api.tql_sql.parameters import Parameters, Statement
from rankscope_query_api.values import SILENT_NS

KEYS: dict[Origin, tuple[str, ...]] = {
    Origin.RUN: ("run_id",),
    Origin.LAUNCH: ("run_id", "launch_id"),
    Origin.PLACE: ("run_id", "launch_id", "rank"),
    Origin.MODULE: ("run_id", "path"),
    Origin.TRACE: ("run_id", "trace_hi", "trace_lo"),
    Origin.TREE: ("run_id", "trace_hi", "trace_lo", "parent_span_id"),
    Origin.MATCH: ("run_id", "incarnation", "seq", "idx"),
}
"""Key columns of each."""

_OF_PROJECT = "project = {project:String}"
_OF_RUN = "project = {project:String} AND run_id = {run:String}"
_DOT, _NUMBER = "{dot:String}", "{number:String}"
_BOUND = {"dot": ".", "number": "0*([0-9]+)$", "dash": "-", "comma": ","}

# What the list of runs says, computed alike: the worst status of the latest launch's trainers, or of all its processes
# where none calls itself a trainer; a process that fell silent was interrupted.
_STATES = f"""
    arrayMap(
        one -> if(one.3 = {RunStatus.RUNNING.code} AND one.4 > {SILENT_NS}, {RunStatus.INTERRUPTED.code}, one.3),
        arrayFilter(one -> one.1 = latest AND one.2 = has_trainer, processes)
    )"""

_RUNS = f"""
SELECT
    run_id,
    {{project:String}} AS project,
    run_time,
    if(named = '', NULL, named) AS run_name,
    run_config,
    run_tag,
    {_STATES} AS states,
    multiIf(
        has(states, {RunStatus.FAILED.code}), toUInt8({RunStatus.FAILED.code}),
        has(states, {RunStatus.INTERRUPTED.code}), {RunStatus.INTERRUPTED.code},
        has(states, {RunStatus.RUNNING.code}), {RunStatus.RUNNING.code},
        has(states, {RunStatus.FINISHED.code}), {RunStatus.FINISHED.code},
        NULL
    ) AS run_status
FROM (
    SELECT
        heard.run_id AS run_id,
        min(first_sealed) AS run_time,
        argMinIf(last_name, (started, at_rank, heard.incarnation), last_name != '') AS named,
        argMinIf(last_config, (started, at_rank, heard.incarnation), last_config != '') AS run_config,
        arraySort(groupUniqArrayArray(last_tags)) AS run_tag,
        max(role = {ProcessRole.TRAINER.code}) AS has_trainer,
        argMaxIf(launch, (role = {ProcessRole.TRAINER.code}, started, launch), role != 0) AS latest,
        groupArrayIf(
            (launch, role = {ProcessRole.TRAINER.code}, last_status, if(isNull(ended), silent, 0)), role != 0
        ) AS processes
    FROM (
        SELECT
            run_id,
            incarnation,
            min(sealed) AS first_sealed,
            toUnixTimestamp64Nano(now64(9)) - max(if(received > 0, received, sealed)) AS silent
        FROM batches
        PREWHERE {SCOPED}
        GROUP BY run_id, incarnation
    ) AS heard
    LEFT JOIN (
        SELECT
            run_id,
            incarnation,
            any(launch_id) AS launch,
            any(rank) AS at_rank,
            any(process_role) AS role,
            argMax(status, (seq, idx)) AS last_status,
            argMax(name, (seq, idx)) AS last_name,
            argMax(config, (seq, idx)) AS last_config,
            argMax(tags, (seq, idx)) AS last_tags,
            min(start) AS started,
            max(end) AS ended
        FROM runs
        PREWHERE {SCOPED}
        GROUP BY run_id, incarnation
    ) AS said ON heard.run_id = said.run_id AND heard.incarnation = said.incarnation
    GROUP BY heard.run_id
)"""

# By time of the first batch, from 0, as the list of launches counts.
_LAUNCHES = f"""
SELECT
    run_id,
    launch_id,
    toUInt32(row_number() OVER (PARTITION BY run_id ORDER BY first_sealed, launch_id) - 1) AS launch_attempt
FROM (
    SELECT run_id, launch_id, min(sealed) AS first_sealed
    FROM batches
    PREWHERE {SCOPED}
    GROUP BY run_id, launch_id
)"""

_PLACES = f"""
SELECT run_id, launch_id, rank, argMax(mesh, (length(mesh), sealed)) AS coordinates
FROM batches
PREWHERE {SCOPED}
GROUP BY run_id, launch_id, rank"""

# A layer is what `layers.is_block` says: its name ends in its index, and its parent has another.
_LAYERS = f"""
SELECT run_id, groupUniqArray(path) AS layers
FROM modules
PREWHERE {SCOPED}
WHERE isNotNull(layer_index)
    AND extract(splitByString({_DOT}, path)[-1], {_NUMBER}) = toString(ifNull(layer_index, 0))
    AND (run_id, parent, ifNull(layer_index, 0)) NOT IN (
        SELECT run_id, path, ifNull(layer_index, 0) FROM modules PREWHERE {SCOPED} WHERE isNotNull(layer_index)
    )
GROUP BY run_id"""

_MODULES = f"""
SELECT
    one.run_id AS run_id,
    one.path AS path,
    if(last_class = '', NULL, last_class) AS module_class,
    if(last_type = '', NULL, last_type) AS module_type,
    splitByString({_DOT}, one.path) AS parts,
    arrayLast(
        above -> has(layers, above),
        arrayMap(size -> arrayStringConcat(arraySlice(parts, 1, size), {_DOT}), range(1, length(parts) + 1))
    ) AS nearest,
    if(nearest = '', NULL, nearest) AS layer_path
FROM (
    SELECT
        run_id,
        path,
        argMax(class, (time, incarnation, seq, idx)) AS last_class,
        argMax(type, (time, incarnation, seq, idx)) AS last_type
    FROM modules
    PREWHERE {SCOPED}
    GROUP BY run_id, path
) AS one
LEFT JOIN ({_LAYERS}) AS numbered ON one.run_id = numbered.run_id"""

# Named `project` beside the table, the constant would be what PREWHERE compares: an alias goes before a column.
_TRACES = f"""
SELECT *, {{project:String}} AS project
FROM (
    SELECT
        run_id,
        trace_hi,
        trace_lo,
        argMinIf(name, (start, span_id), parent_span_id = 0) AS named,
        if(named = '', NULL, named) AS trace_root_name,
        max({SPAN_END}) - min(start) AS trace_duration,
        uniqExact(span_id) AS trace_span_count,
        uniqExactIf(span_id, status = {SpanStatus.ERROR.code}) AS trace_error_count,
        uniqExactIf(rank, rank >= 0) AS trace_rank_count,
        multiIf(
            max(status = {SpanStatus.ERROR.code}), toUInt8({SpanStatus.ERROR.code}),
            max(status = {SpanStatus.CANCELLED.code}), {SpanStatus.CANCELLED.code},
            min(status = {SpanStatus.INTERRUPTED.code}), {SpanStatus.INTERRUPTED.code},
            {SpanStatus.OK.code}
        ) AS trace_status,
        argMinIf(step, (start, span_id), isNotNull(step)) AS trace_step,
        min(start) AS trace_time
    FROM spans
    PREWHERE {SCOPED}
    GROUP BY run_id, trace_hi, trace_lo
)"""

_CHILDREN = f"""
SELECT
    run_id,
    trace_hi,
    trace_lo,
    parent_span_id,
    count() AS children,
    sum(toInt128(greatest(child_duration, 0))) AS children_duration
FROM (
    SELECT
        run_id,
        trace_hi,
        trace_lo,
        parent_span_id,
        span_id,
        argMin(duration, (start, status = {SpanStatus.INTERRUPTED.code}, incarnation, seq, idx)) AS child_duration
    FROM spans
    PREWHERE {SCOPED}
    WHERE parent_span_id != 0
    GROUP BY run_id, trace_hi, trace_lo, parent_span_id, span_id
)
GROUP BY run_id, trace_hi, trace_lo, parent_span_id"""

_TEXTS: dict[Origin, str] = {
    Origin.RUN: _RUNS,
    Origin.LAUNCH: _LAUNCHES,
    Origin.PLACE: _PLACES,
    Origin.MODULE: _MODULES,
    Origin.TRACE: _TRACES,
    Origin.TREE: _CHILDREN,
    Origin.MATCH: MATCHES,
}


def relation(origin: Origin, *, project: str, run: str | None, parameters: Parameters) -> Expr:
    """The text of a SELECT of one row a key (`KEYS`), of one project and, unless all are meant, of one run.

    Args:
        origin: What the rows are; not ROW.
        project: The only project to read.
        run: The only run to read; None: all of the project.
        parameters: Learns what the statement binds.
    """
    _name_scope(project, run, parameters)
    for name, text in _BOUND.items():
        if f"{{{name}:String}}" in _TEXTS[origin]:
            parameters.named(name, text, table="String")
    return exp.Var(this=_text(origin, run is not None))


def unmeasured_clocks(*, project: str, run: str | None) -> Statement:
    """A statement of one row: how many of how many clocks that should agree were never measured.

    Args:
        project: The only project to read.
        run: The only run to read; None: all of the project.
    """
    parameters = Parameters()
    _name_scope(project, run, parameters)
    sql = _scoped(UNMEASURED, run is not None)
    check_statement(sql, with_run=run is not None)
    return Statement(sql, parameters.values)


def _name_scope(project: str, run: str | None, parameters: Parameters, /) -> None:
    parameters.named("project", project, table="String")
    if run is not None:
        parameters.named("run", run, table="String")


@functools.cache
def _text(origin: Origin, has_run: bool) -> str:
    return _scoped(_TEXTS[origin], has_run)


def _scoped(text: str, has_run: bool) -> str:
    return " ".join(text.replace(SCOPED, _OF_RUN if has_run else _OF_PROJECT).split())
