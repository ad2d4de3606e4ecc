"""What the rows of a step come to, for its tree across ranks.

A step's spans are neighbouring rows (see `spans`). Sums are made here by path, with a list over the ranks: a step of
1,024 ranks has 61,440 of them, and as rows of their own they took four times as long to read.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rankscope_proto.names import EventKind, GapCause, GapClass, ProcessRole, SpanStatus
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.reading.runs import IS_ASKED_FOR, IS_OVER, IS_VOID
from rankscope_query_api.reading.spans import IN_STEP_TRACE, OF_STEP
from rankscope_query_api.step_rows import ClockShift, EdgeFaults, HeardRank, PathTotals, StepProcess
from rankscope_query_api.values import Record, RunKey, Value

LATER_STEPS = 1_000
"""Steps behind one in which a rank is looked for that does not have it."""

_NOBODY = "-"
"""An incarnation that no process has: a list of constants may not be empty."""

_OF_RUN = "project = {project:String} AND run_id = {run:String}"
_PATH = "if(path = '', name, path)"
_MICROBATCH = "toInt64(ifNull(microbatch, -1))"

# A process is named by 8 bytes in long lists: as text its id is four times as long, and is made anew for each row.
PROCESSES = f"""
SELECT
    lower(hex(incarnation)) AS incarnation_hex,
    cityHash64(incarnation) AS number,
    rank,
    any(node) AS node_name,
    uniqExact(span_id) AS spans,
    count() AS rows,
    countIf({_PATH} = 'step') AS roots,
    min(start) AS start_ns
FROM spans
WHERE {OF_STEP}
GROUP BY incarnation, rank
ORDER BY rank, incarnation_hex"""

_ROWS = f"""
        SELECT
            rank,
            cityHash64(incarnation) AS process,
            {_PATH} AS path_of,
            {_MICROBATCH} AS microbatch_of,
            name AS span_name,
            kind AS span_kind,
            phase AS span_phase,
            status AS span_status,
            duration AS span_duration,
            start AS span_start,
            1 AS rows
        FROM spans
        WHERE {OF_STEP}"""

# Grouped by span: one that is stored twice counts once, and `copies` tells.
_FIRST_COPIES = f"""
        SELECT
            rank,
            any(cityHash64(incarnation)) AS process,
            any({_PATH}) AS path_of,
            any({_MICROBATCH}) AS microbatch_of,
            any(name) AS span_name,
            any(kind) AS span_kind,
            any(phase) AS span_phase,
            any(status) AS span_status,
            any(duration) AS span_duration,
            any(start) AS span_start,
            count() AS rows
        FROM spans
        WHERE {OF_STEP}
        GROUP BY rank, span_id"""


def _paths(source: str) -> str:
    return f"""
SELECT
    path_of,
    microbatch_of,
    any(name_of) AS name,
    any(kind_of) AS kind,
    any(phase_of) AS phase,
    groupArray(rank) AS ranks,
    groupArray(process) AS processes,
    groupArray(spans_of) AS counts,
    groupArray(rows_of) AS copies,
    groupArray(errors_of) AS errors,
    groupArray(duration_ns) AS durations_ns,
    groupArray(start_ns) AS starts_ns
FROM (
    SELECT
        rank,
        process,
        path_of,
        microbatch_of,
        any(span_name) AS name_of,
        any(span_kind) AS kind_of,
        any(span_phase) AS phase_of,
        count() AS spans_of,
        sum(rows) AS rows_of,
        countIf(span_status = {SpanStatus.ERROR.code}) AS errors_of,
        sum(span_duration) AS duration_ns,
        min(span_start) AS start_ns
    FROM ({source}
    )
    GROUP BY rank, process, path_of, microbatch_of
)
GROUP BY path_of, microbatch_of
ORDER BY path_of, microbatch_of"""


PATHS, PATHS_OF_FIRST_COPIES = _paths(_ROWS), _paths(_FIRST_COPIES)

# Within one process nothing is to be known of clocks: mostly there is no other edge, and none of these is faulty.
ANY_FAULT = f"""
SELECT countIf(
    parents.span_id = 0
    OR children.incarnation != parents.incarnation
    OR children.start < parents.start
    OR toInt128(children.start) + children.duration > toInt128(parents.start) + parents.duration
) AS edges
FROM (
    SELECT span_id, parent_span_id, incarnation, start, duration FROM spans WHERE {OF_STEP} AND parent_span_id != 0
) AS children
ANY LEFT JOIN (
    SELECT span_id, incarnation, start, duration FROM spans WHERE {OF_STEP}
) AS parents ON children.parent_span_id = parents.span_id"""

_SHIFT = "transform(lower(hex(incarnation)), {incarnations:Array(String)}, {offsets:Array(Int64)}, toInt64(0))"
_CLOCK = (
    "transform(lower(hex(incarnation)), {incarnations:Array(String)}, {clocks:Array(UInt64)}, cityHash64(incarnation))"
)
_ERROR = "transform(lower(hex(incarnation)), {incarnations:Array(String)}, {errors:Array(Int64)}, toInt64(-1))"

_EDGE_ENDS = f"""
    SELECT
        span_id,
        parent_span_id,
        {_PATH} AS path_of,
        {_MICROBATCH} AS microbatch_of,
        toInt128(start) + {_SHIFT} AS begun,
        begun + duration AS ended,
        {_CLOCK} AS clock,
        {_ERROR} AS error
    FROM spans
    WHERE {OF_STEP}"""

# Of one clock nothing has to be known; of two, both errors: else a span that comes late may just be told by a clock
# that is behind.
_IS_LATE = """greatest(parents.begun - children.begun, children.ended - parents.ended)
        > if(children.clock = parents.clock, 0, children.error + parents.error)
    AND (children.clock = parents.clock OR (children.error >= 0 AND parents.error >= 0))"""

EDGES = f"""
SELECT
    children.path_of AS path_of,
    children.microbatch_of AS microbatch_of,
    uniqExactIf(children.span_id, parents.span_id = 0) AS orphans,
    uniqExactIf(children.span_id, parents.span_id != 0 AND {_IS_LATE}) AS late
FROM ({_EDGE_ENDS} AND parent_span_id != 0) AS children
ANY LEFT JOIN ({_EDGE_ENDS}) AS parents ON children.parent_span_id = parents.span_id
GROUP BY path_of, microbatch_of
HAVING orphans > 0 OR late > 0
ORDER BY path_of, microbatch_of"""

COORDINATES = f"""
SELECT rank, any(mesh[{{axis:String}}]) AS coordinate
FROM batches
WHERE {_OF_RUN} AND launch_id = unhex({{launch:String}}) AND rank >= 0 AND mapContains(mesh, {{axis:String}})
GROUP BY rank
ORDER BY rank"""

AXES = f"""
SELECT arraySort(groupUniqArrayArray(mapKeys(mesh))) AS axes
FROM batches
WHERE {_OF_RUN} AND launch_id = unhex({{launch:String}})"""

# A batch that is set aside (or a process of which nothing but its loss is known) is heard, too: by its agent.
HEARD = f"""
SELECT
    lower(hex(launch_id)) AS launch,
    rank,
    lower(hex(incarnation)) AS incarnation_hex,
    toUnixTimestamp64Nano(now64(9)) - max(if(received > 0, received, sealed)) AS silent_ns
FROM batches
WHERE {_OF_RUN} AND rank >= 0 AND process_role = {ProcessRole.TRAINER.code}
GROUP BY launch_id, rank, incarnation
ORDER BY launch, rank, incarnation_hex"""

ENDED = f"""
SELECT DISTINCT lower(hex(incarnation)) AS incarnation_hex
FROM events
WHERE {_OF_RUN} AND kind = '{EventKind.END_OF_STREAM.value}'"""

GONE = f"""
SELECT DISTINCT if(isNull(incarnation_hi), lower(hex(incarnation)), concat(
    leftPad(lower(hex(ifNull(incarnation_hi, 0))), 16, '0'), leftPad(lower(hex(ifNull(incarnation_lo, 0))), 16, '0')
)) AS incarnation_hex
FROM gaps
WHERE {_OF_RUN} AND cause = '{GapCause.TAIL_UNKNOWN.value}'"""

CAUSES = f"""
SELECT rank, class, arrayStringConcat(arraySort(groupUniqArray(cause)), ', ') AS causes
FROM gaps
WHERE project = {{project:String}} AND run_id IN {{runs:Array(String)}} AND launch_id = unhex({{launch:String}})
    AND cause != '{GapCause.TAIL_UNKNOWN.value}' AND {IS_ASKED_FOR} AND NOT ({IS_VOID}) AND NOT ({IS_OVER})
GROUP BY rank, class
ORDER BY rank, class"""

LATER = f"""
SELECT DISTINCT rank
FROM spans
WHERE {_OF_RUN} AND toInt64(ifNull(step, -1)) > {{step:Int64}}
    AND toInt64(ifNull(step, -1)) <= {{last:Int64}} AND launch_id = unhex({{launch:String}})
    AND {IN_STEP_TRACE} AND rank IN {{ranks:Array(Int32)}}
ORDER BY rank"""

STATEMENTS = (
    *(PROCESSES, PATHS, PATHS_OF_FIRST_COPIES, ANY_FAULT, EDGES, COORDINATES, AXES),
    *(HEARD, ENDED, GONE, CAUSES, LATER),
)
"""Every statement of this module, for the test that reads them."""


class ClickHouseStepTrees:
    """`StepTreeReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def processes(self, key: RunKey, launch: str, *, step: int) -> Sequence[StepProcess]:
        """See `StepTreeReader`."""
        table = await self._clickhouse.select(PROCESSES, _of_step(key, launch, step=step))
        return [StepProcess(*row) for row in zip(*table.columns, strict=True)]

    async def paths(self, key: RunKey, launch: str, *, step: int, has_copies: bool) -> Sequence[PathTotals]:
        """See `StepTreeReader`."""
        statement = PATHS_OF_FIRST_COPIES if has_copies else PATHS
        return [
            _totals(row)
            for row in (await self._clickhouse.select(statement, _of_step(key, launch, step=step))).records()
        ]

    async def edges(self, key: RunKey, launch: str, *, step: int, shifts: Sequence[ClockShift]) -> Sequence[EdgeFaults]:
        """See `StepTreeReader`."""
        where = _of_step(key, launch, step=step)
        if not (await self._clickhouse.select(ANY_FAULT, where)).columns[0][0]:
            return ()
        found = (await self._clickhouse.select(EDGES, {**where, **_shifting(shifts)})).records()
        return [
            EdgeFaults(row["path_of"], _microbatch(row["microbatch_of"]), row["orphans"], row["late"]) for row in found
        ]

    async def coordinates(self, key: RunKey, launch: str, *, axis: str) -> Mapping[int, int]:
        """See `StepTreeReader`."""
        table = await self._clickhouse.select(COORDINATES, {**_of_launch(key, launch), "axis": axis})
        return dict(zip(*table.columns, strict=True)) if table.columns else {}

    async def axes(self, key: RunKey, launch: str) -> Sequence[str]:
        """See `StepTreeReader`."""
        (found,) = (await self._clickhouse.select(AXES, _of_launch(key, launch))).records()
        return found["axes"]

    async def heard(self, key: RunKey) -> Sequence[HeardRank]:
        """See `StepTreeReader`."""
        where: dict[str, Value] = {"project": key.project, "run": key.run}
        heard = (await self._clickhouse.select(HEARD, where)).records()
        ended, gone = [
            {row["incarnation_hex"] for row in (await self._clickhouse.select(statement, where)).records()}
            for statement in (ENDED, GONE)
        ]
        return [
            HeardRank(
                launch_id=row["launch"],
                rank=row["rank"],
                incarnation=row["incarnation_hex"],
                silent_ns=row["silent_ns"],
                ended=row["incarnation_hex"] in ended,
                is_gone=row["incarnation_hex"] in gone,
            )
            for row in heard
        ]

    async def causes(self, key: RunKey, launch: str, *, step: int) -> Mapping[int, str]:
        """See `StepTreeReader`."""
        where: dict[str, Value] = {"project": key.project, "runs": [key.run], "launch": launch}
        found = (await self._clickhouse.select(CAUSES, {**where, "sections": ["spans"], "step": step})).records()
        causes: defaultdict[int, list[str]] = defaultdict(list)
        for row in found:
            causes[row["rank"]].append(f"{GapClass.of(row['class'])}: {row['causes']}")
        return {rank: "; ".join(told) for rank, told in causes.items()}

    async def with_later_steps(self, key: RunKey, launch: str, *, step: int, ranks: Sequence[int]) -> frozenset[int]:
        """See `StepTreeReader`."""
        last = min(step + LATER_STEPS, 2**63 - 1)
        where: dict[str, Value] = {**_of_step(key, launch, step=step), "last": last, "ranks": list(ranks)}
        return frozenset(row["rank"] for row in (await self._clickhouse.select(LATER, where)).records())


def _of_launch(key: RunKey, launch: str) -> dict[str, Value]:
    return {"project": key.project, "run": key.run, "launch": launch}


def _of_step(key: RunKey, launch: str, *, step: int) -> dict[str, Value]:
    return {**_of_launch(key, launch), "step": step}


def _shifting(shifts: Sequence[ClockShift]) -> dict[str, Value]:
    clocks = {one.clock: number for number, one in enumerate(shifts)}
    return {
        "incarnations": [*(one.incarnation for one in shifts), _NOBODY],
        "offsets": [*(one.offset_ns for one in shifts), 0],
        "errors": [*(-1 if one.error_ns is None else one.error_ns for one in shifts), -1],
        "clocks": [*(clocks[one.clock] for one in shifts), 0],
    }


def _microbatch(told: int) -> int | None:
    return None if told < 0 else told


def _totals(row: Record) -> PathTotals:
    return PathTotals(
        path=row["path_of"],
        name=row["name"],
        microbatch=_microbatch(row["microbatch_of"]),
        kind=row["kind"],
        phase=row["phase"],
        ranks=row["ranks"],
        processes=row["processes"],
        counts=row["counts"],
        copies=row["copies"],
        errors=row["errors"],
        durations_ns=row["durations_ns"],
        starts_ns=row["starts_ns"],
    )
