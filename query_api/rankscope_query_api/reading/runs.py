"""Runs, launches, metrics and gaps, from the ledger and the small tables."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

import asyncio
from collections.abc import Mapping, Sequence

from rankscope_proto.columns import SECTIONS
from rankscope_proto.names import SPAN_FLAGS, EventKind, GapClass, ProcessRole, RunStatus, Severity
from rankscope_query_api.answers import Key
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.store import RUNS_WITH_GAPS_TOLD
from rankscope_query_api.values import Launch, Process, Record, RunKey, RunSummary, Slice

_MAX_INT64 = 2**63 - 1

RUN_IDS = """
SELECT run_id FROM batches WHERE project = {project:String}
GROUP BY run_id ORDER BY min(sealed) DESC, run_id LIMIT 1000"""

RUN_COUNT = "SELECT uniqExact(run_id) AS total FROM batches WHERE project = {project:String}"

# The ledger, not `runs`: a run is there from its first batch on, whatever that batch holds.
RUNS = """
SELECT
    run_id,
    min(sealed) AS started_ns,
    max(sealed) AS updated_ns,
    max(batches.world_size) AS world_size,
    uniqExactIf(rank, rank >= 0) AS ranks,
    uniqExact(launch_id) AS launches
FROM batches
WHERE project = {project:String}
GROUP BY run_id
HAVING (started_ns, run_id) < ({started:Int64}, {run:String}) OR {started:Int64} = 9223372036854775807
ORDER BY started_ns DESC, run_id DESC
LIMIT {limit:UInt32}"""

_PROCESS_COLUMNS = """
    run_id,
    lower(hex(any(launch_id))) AS launch,
    lower(hex(incarnation)) AS incarnation_hex,
    any(rank) AS rank_of,
    any(process_role) AS role,
    any(node) AS node_name,
    argMax(status, (seq, idx)) AS last_status,
    argMax(name, (seq, idx)) AS last_name,
    argMax(tags, (seq, idx)) AS last_tags,
    min(start) AS started_ns,
    max(end) AS ended_ns,
"""

_PROCESS_SOURCE = """
FROM runs
WHERE project = {project:String} AND run_id IN {runs:Array(String)}
GROUP BY run_id, incarnation
ORDER BY started_ns, rank_of, incarnation_hex"""

PROCESSES = f"SELECT {_PROCESS_COLUMNS} '' AS config, '' AS command, map() AS facts {_PROCESS_SOURCE}"

PROCESSES_WITH_CONFIG = f"""SELECT {_PROCESS_COLUMNS}
    argMax(runs.config, (seq, idx)) AS config,
    argMax(runs.command, (seq, idx)) AS command,
    argMax(runs.facts, (seq, idx)) AS facts
{_PROCESS_SOURCE}"""

_SECTION_SUMS = ", ".join(f"sum(rows_{section.name}) AS stored_{section.name}" for section in SECTIONS)

LAUNCHES = f"""
SELECT
    lower(hex(launch_id)) AS launch,
    min(sealed) AS started_ns,
    max(sealed) AS updated_ns,
    max(batches.world_size) AS world_size,
    arraySort(groupUniqArrayIf(rank, rank >= 0 AND process_role = {ProcessRole.TRAINER.code})) AS ranks,
    {_SECTION_SUMS}
FROM batches
WHERE project = {{project:String}} AND run_id = {{run:String}}
GROUP BY launch_id
ORDER BY started_ns, launch"""

# Whose rows a gap is about: those of the process that states it, or of the one it names.
_CONCERNED = """if(
        isNull(incarnation_hi),
        incarnation,
        toFixedString(unhex(concat(
            leftPad(hex(ifNull(incarnation_hi, 0)), 16, '0'), leftPad(hex(ifNull(incarnation_lo, 0)), 16, '0')
        )), 16)
    )"""

# A batch that was declared lost and is there after all (replayed, sent again) is no gap; the ledger's key finds it.
_IS_OF_ONE_BATCH = f"class = {GapClass.LOST.code} AND ifNull(seq_from = seq_to, 0)"

IS_VOID = f"""{_IS_OF_ONE_BATCH} AND ({_CONCERNED}, ifNull(seq_from, 0)) IN (
        SELECT incarnation, seq FROM batches
        WHERE project = {{project:String}} AND run_id IN {{runs:Array(String)}} AND (incarnation, seq) IN (
            SELECT {_CONCERNED}, ifNull(seq_from, 0) FROM gaps
            WHERE project = {{project:String}} AND run_id IN {{runs:Array(String)}} AND {_IS_OF_ONE_BATCH}
        )
    )"""

# What is not captured is stated when that begins, and again with its end when it is over: then the first is void.
IS_OVER = f"""class = {GapClass.NOT_CAPTURED.code} AND end IS NULL
    AND (incarnation, cause, data_kind, detail, start) IN (
        SELECT incarnation, cause, data_kind, detail, start FROM gaps
        WHERE project = {{project:String}} AND run_id IN {{runs:Array(String)}}
            AND class = {GapClass.NOT_CAPTURED.code} AND end IS NOT NULL
    )"""

# Most runs lack nothing, and to see that costs a sixth of asking what.
ANY_GAP = "SELECT count() AS rows FROM gaps WHERE project = {project:String} AND run_id = {run:String}"

# An interval that captures every k-th step holds a step's rows if k divides the step: such a row is no gap there.
IS_ASKED_FOR = f"""(empty({{sections:Array(String)}}) OR data_kind IN {{sections:Array(String)}} OR data_kind = '')
    AND ({{step:Int64}} < 0 OR (
        ifNull(step_from, 0) <= {{step:Int64}} AND ifNull(step_to, {_MAX_INT64}) >= {{step:Int64}}
        AND ifNull({{step:Int64}} % step_stride, 1) != 0))"""

RUNS_WITH_GAPS = f"""
SELECT run_id
FROM gaps
WHERE project = {{project:String}} AND {IS_ASKED_FOR}
GROUP BY run_id
ORDER BY max(start) DESC, run_id
LIMIT {RUNS_WITH_GAPS_TOLD}"""

GAPS = f"""
SELECT
    run_id,
    class,
    cause,
    data_kind,
    step_stride,
    arraySort(groupUniqArray(rank)) AS ranks,
    sum(count) AS rows,
    min(step_from) AS first_step,
    if(countIf(step_to IS NULL) > 0, NULL, max(step_to)) AS last_step,
    min(start) AS started_ns,
    if(countIf(end IS NULL) > 0, NULL, max(end)) AS ended_ns,
    arraySort(groupUniqArrayIf(5)(detail, detail != '')) AS details
FROM gaps
WHERE project = {{project:String}} AND run_id IN {{runs:Array(String)}}
    AND {IS_ASKED_FOR}
    AND NOT ({IS_VOID})
    AND NOT ({IS_OVER})
GROUP BY run_id, class, cause, data_kind, step_stride
ORDER BY class, cause, data_kind, step_stride, run_id
LIMIT 1000"""

# When each process was last heard of: by its own clock, and by that of the tier that took the batch.
HEARD = """
SELECT
    run_id,
    lower(hex(incarnation)) AS incarnation_hex,
    max(sealed) AS sealed_ns,
    max(if(received > 0, received, sealed)) AS heard_ns,
    toUnixTimestamp64Nano(now64(9)) - heard_ns AS silent_ns
FROM batches
WHERE project = {project:String} AND run_id IN {runs:Array(String)}
GROUP BY run_id, incarnation"""

_KINDS = ", ".join(f"'{kind.value}'" for kind in (EventKind.RANK_CONFLICT, EventKind.ALERT))

EVENTS = f"""
SELECT time, kind, name, severity, payload, step, rank, node, lower(hex(launch_id)) AS launch
FROM events
WHERE project = {{project:String}} AND run_id = {{run:String}}
    AND (severity >= {Severity.WARNING.code} OR kind IN ({_KINDS}))
ORDER BY time DESC, incarnation, seq, idx
LIMIT {{limit:UInt32}}"""

OPEN_SPANS = """
SELECT
    rank,
    node,
    lower(hex(launch_id)) AS launch,
    lower(hex(incarnation)) AS incarnation_hex,
    heartbeat,
    thread,
    step,
    stack_trace_hi,
    stack_trace_lo,
    stack_span_id,
    stack_name,
    stack_kind,
    stack_start
FROM open_spans
WHERE project = {project:String} AND run_id = {run:String}
    AND (incarnation, heartbeat) IN (
        SELECT incarnation, max(heartbeat) FROM open_spans
        WHERE project = {project:String} AND run_id = {run:String}
        GROUP BY incarnation
    )
ORDER BY rank, incarnation, seq, idx
LIMIT 1 BY incarnation, seq, idx"""

# The sorting key reads this from its end: one granule, however long the run is.
LAST_STEP = f"""
SELECT step
FROM spans
WHERE project = {{project:String}} AND run_id = {{run:String}} AND path = 'step'
    AND bitAnd(flags, {SPAN_FLAGS["in_step_trace"]}) != 0
ORDER BY ifNull(step, -1) DESC
LIMIT 1"""

METRIC_NAMES = """
SELECT
    name,
    count() AS points,
    arraySort(groupUniqArray(rank)) AS ranks,
    min(step) AS first_step,
    max(step) AS last_step,
    argMax(value, (ifNull(step, -1), time, seq, idx)) AS last_value
FROM scalars
WHERE project = {project:String} AND run_id = {run:String}
GROUP BY name
ORDER BY name"""

METRIC_COUNT = """
SELECT count() AS total FROM scalars
WHERE project = {project:String} AND run_id = {run:String} AND name = {name:String}"""

METRIC_POINTS = """
SELECT
    rank,
    step,
    value,
    time AS time_ns,
    lower(hex(launch_id)) AS launch_id,
    lower(hex(incarnation)) AS incarnation_hex,
    seq,
    idx
FROM scalars
WHERE project = {project:String} AND run_id = {run:String} AND name = {name:String}
    AND (rank, ifNull(step, -1), time, incarnation_hex, seq, idx)
        > ({rank:Int32}, {step:Int64}, {time:Int64}, {incarnation:String}, {seq:UInt64}, {idx:UInt32})
ORDER BY rank, ifNull(step, -1), time, incarnation_hex, seq, idx
LIMIT {limit:UInt32}"""

STATEMENTS = (
    *(RUN_IDS, RUN_COUNT, RUNS, PROCESSES, PROCESSES_WITH_CONFIG, LAUNCHES, RUNS_WITH_GAPS, GAPS, ANY_GAP),
    *(HEARD, EVENTS, OPEN_SPANS, LAST_STEP),
    *(METRIC_NAMES, METRIC_COUNT, METRIC_POINTS),
)
"""Every statement of this module, for the test that reads them."""


class ClickHouseRuns:
    """`RunReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def run_ids(self, project: str) -> Sequence[str]:
        """See `RunReader`."""
        table = await self._clickhouse.select(RUN_IDS, {"project": project})
        return [record["run_id"] for record in table.records()]

    async def runs(self, project: str, *, limit: int, after: Key | None) -> Slice[RunSummary]:
        """See `RunReader`."""
        started, run = after or (_MAX_INT64, "")
        total = (await self._clickhouse.select(RUN_COUNT, {"project": project})).columns[0][0]
        table = await self._clickhouse.select(
            RUNS, {"project": project, "started": started, "run": run, "limit": limit + 1}
        )
        found = [RunSummary(**record) for record in table.records()]
        items = found[:limit]
        last = (items[-1].started_ns, items[-1].run_id) if len(found) > limit else None
        return Slice(items, total, last)

    async def processes(self, project: str, runs: Sequence[str], *, config: bool) -> Sequence[Process]:
        """See `RunReader`."""
        statement = PROCESSES_WITH_CONFIG if config else PROCESSES
        where = {"project": project, "runs": list(runs)}
        table, heard = await asyncio.gather(
            self._clickhouse.select(statement, where), self._clickhouse.select(HEARD, where)
        )
        last = {(record["run_id"], record["incarnation_hex"]): record for record in heard.records()}
        return [_process(record, last) for record in table.records()]

    async def launches(self, key: RunKey) -> Sequence[Launch]:
        """See `RunReader`."""
        table = await self._clickhouse.select(LAUNCHES, {"project": key.project, "run": key.run})
        return [_launch(attempt, record) for attempt, record in enumerate(table.records())]

    async def gaps(self, key: RunKey, *, sections: Sequence[str], step: int | None = None) -> Sequence[Record]:
        """See `RunReader`."""
        if not await self.has_gaps(key):
            return ()
        return await self._gaps(key.project, [key.run], sections=sections, step=step)

    async def has_gaps(self, key: RunKey) -> bool:
        """See `RunReader`."""
        table = await self._clickhouse.select(ANY_GAP, {"project": key.project, "run": key.run})
        return bool(table.columns[0][0])

    async def gaps_of_project(
        self, project: str, *, sections: Sequence[str], step: int | None = None
    ) -> Sequence[Record]:
        """See `RunReader`."""
        where = {"project": project, "sections": list(sections), "step": -1 if step is None else step}
        runs = [row["run_id"] for row in (await self._clickhouse.select(RUNS_WITH_GAPS, where)).records()]
        return await self._gaps(project, runs, sections=sections, step=step) if runs else ()

    async def _gaps(
        self, project: str, runs: Sequence[str], *, sections: Sequence[str], step: int | None
    ) -> Sequence[Record]:
        asked = {
            "project": project,
            "runs": list(runs),
            "sections": list(sections),
            "step": -1 if step is None else step,
        }
        table = await self._clickhouse.select(GAPS, asked)
        return [record | {"class": GapClass.of(record["class"])} for record in table.records()]

    async def events(self, key: RunKey, *, limit: int) -> Sequence[Record]:
        """See `RunReader`."""
        table = await self._clickhouse.select(EVENTS, {"project": key.project, "run": key.run, "limit": limit})
        return table.records()

    async def open_spans(self, key: RunKey) -> Sequence[Record]:
        """See `RunReader`."""
        table = await self._clickhouse.select(OPEN_SPANS, {"project": key.project, "run": key.run})
        return table.records()

    async def last_step(self, key: RunKey) -> int | None:
        """See `RunReader`."""
        table = await self._clickhouse.select(LAST_STEP, {"project": key.project, "run": key.run})
        return next((record["step"] for record in table.records()), None)

    async def metric_names(self, key: RunKey) -> Sequence[Record]:
        """See `RunReader`."""
        table = await self._clickhouse.select(METRIC_NAMES, {"project": key.project, "run": key.run})
        return table.records()

    async def metric_points(self, key: RunKey, name: str, *, limit: int, after: Key | None) -> Slice[Record]:
        """See `RunReader`."""
        where = {"project": key.project, "run": key.run, "name": name}
        total = (await self._clickhouse.select(METRIC_COUNT, where)).columns[0][0]
        rank, step, time, incarnation, seq, idx = after or (-2, -2, -1, "", 0, 0)
        start = {"rank": rank, "step": step, "time": time, "incarnation": incarnation, "seq": seq, "idx": idx}
        table = await self._clickhouse.select(METRIC_POINTS, {**where, **start, "limit": limit + 1})
        found = table.records()
        items = [_point(record) for record in found[:limit]]
        return Slice(items, total, _point_key(found[limit - 1]) if len(found) > limit else None)


def _process(record: Record, last: Mapping[tuple[str, str], Record]) -> Process:
    # A process' word is in the tables before its batch is in the ledger: then it was heard of just now.
    heard = last.get((record["run_id"], record["incarnation_hex"]))
    return Process(
        run_id=record["run_id"],
        launch_id=record["launch"],
        incarnation=record["incarnation_hex"],
        rank=record["rank_of"],
        process_role=ProcessRole.of(record["role"]),
        node=record["node_name"],
        status=RunStatus.of(record["last_status"]),
        name=record["last_name"],
        config=record["config"],
        command=record["command"],
        tags=record["last_tags"],
        facts=record["facts"],
        started_ns=record["started_ns"],
        ended_ns=record["ended_ns"],
        sealed_ns=heard["sealed_ns"] if heard else record["started_ns"],
        heard_ns=heard["heard_ns"] if heard else record["started_ns"],
        silent_ns=heard["silent_ns"] if heard else 0,
    )


def _launch(attempt: int, record: Record) -> Launch:
    return Launch(
        launch_id=record["launch"],
        attempt=attempt,
        started_ns=record["started_ns"],
        updated_ns=record["updated_ns"],
        world_size=record["world_size"],
        ranks=record["ranks"],
        rows={section.name: record[f"stored_{section.name}"] for section in SECTIONS},
    )


def _point(record: Record) -> Record:
    return {name: record[name] for name in ("rank", "step", "value", "time_ns", "launch_id")}


def _point_key(record: Record) -> Key:
    step = -1 if record["step"] is None else record["step"]
    return record["rank"], step, record["time_ns"], record["incarnation_hex"], record["seq"], record["idx"]
