"""Steps and their spans.

A step's spans are neighbouring rows: the sorting key is (project, run_id, ifNull(step, -1), rank, start), so every
statement that knows a step says so in that expression, inside `toInt64`: on 26.9 a compared `ifNull` is taken apart
before the key is looked at, and all granules of the run are read (measured: 245 of 245, and 1 of 245 so).
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Mapping, Sequence

from rankscope_proto.names import SPAN_FLAGS, Phase
from rankscope_query_api.answers import Key
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.values import Record, RunKey, Slice, StepTimes, Table, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"
IN_STEP_TRACE = f"bitAnd(flags, {SPAN_FLAGS['in_step_trace']}) != 0"
OF_STEP = f"""{_OF_RUN} AND toInt64(ifNull(step, -1)) = {{step:Int64}} AND launch_id = unhex({{launch:String}})
    AND {IN_STEP_TRACE}"""
_PHASES = (Phase.INPUT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

_STEP_ROWS = f"""
    SELECT launch_id, step, rank, sum(duration) AS total, min(start) AS first
    FROM spans
    WHERE {_OF_RUN} AND path = 'step' AND {IN_STEP_TRACE}
        AND ({{launch:String}} = '' OR launch_id = unhex({{launch:String}}))
    GROUP BY launch_id, step, rank
"""

STEP_COUNT = f"SELECT uniqExact(step, launch_id) AS total FROM ({_STEP_ROWS})"

STEPS = f"""
SELECT
    assumeNotNull(step) AS step_of,
    lower(hex(launch_id)) AS launch,
    count() AS ranks,
    min(first) AS started_ns,
    min(total) AS min_ns,
    toInt64(medianExact(total)) AS median_ns,
    max(total) AS max_ns,
    argMax(rank, (total, -rank)) AS slowest_rank
FROM ({_STEP_ROWS})
GROUP BY step, launch_id
HAVING (step_of, launch) > ({{step:Int64}}, {{after:String}})
ORDER BY step_of, launch
LIMIT {{limit:UInt32}}"""

LAUNCHES_OF_STEP = f"""
SELECT lower(hex(launch_id)) AS launch, max(spans.world_size) AS world_size
FROM spans
WHERE {_OF_RUN} AND toInt64(ifNull(step, -1)) = {{step:Int64}} AND {IN_STEP_TRACE}
GROUP BY launch_id"""

STEP_SPANS = f"""
SELECT
    span_id,
    parent_span_id,
    start,
    duration,
    name,
    kind,
    status,
    phase,
    microstep,
    microbatch,
    lower(hex(incarnation)) AS incarnation_hex
FROM spans
WHERE {OF_STEP} AND rank = {{rank:Int32}}
ORDER BY start, span_id"""

_PHASE_SUMS = ", ".join(f"sumIf(duration, path = 'step/{phase.value}') AS {phase.value}_ns" for phase in _PHASES)
_PHASE_PATHS = ", ".join(f"'step/{phase.value}'" for phase in _PHASES)

STEP_TIMES = f"""
SELECT assumeNotNull(step) AS step_of, rank, sumIf(duration, path = 'step') AS total_ns, {_PHASE_SUMS}
FROM spans
WHERE {_OF_RUN} AND launch_id = unhex({{launch:String}}) AND {IN_STEP_TRACE}
    AND path IN ('step', {_PHASE_PATHS}) AND rank >= 0 AND toInt64(ifNull(step, -1)) >= {{first:Int64}}
GROUP BY step_of, rank
ORDER BY step_of, rank"""

STEP_RANGE = f"""
SELECT max(ifNull(step, -1)) AS last_step, max(spans.world_size) AS world_size
FROM spans
WHERE {_OF_RUN} AND launch_id = unhex({{launch:String}}) AND {IN_STEP_TRACE} AND path = 'step'"""


STATEMENTS = (STEP_COUNT, STEPS, LAUNCHES_OF_STEP, STEP_SPANS, STEP_TIMES, STEP_RANGE)
"""Every statement of this module, for the test that reads them."""


class ClickHouseSpans:
    """`SpanReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def steps(self, key: RunKey, *, launch: str | None, limit: int, after: Key | None) -> Slice[Record]:
        """See `SpanReader`."""
        where: dict[str, Value] = {**_of(key), "launch": launch or ""}
        total = (await self._clickhouse.select(STEP_COUNT, where)).columns[0][0]
        step, last_launch = after or (-1, "")
        table = await self._clickhouse.select(STEPS, {**where, "step": step, "after": last_launch, "limit": limit + 1})
        found = table.records()
        return Slice(found[:limit], total, _step_key(found[limit - 1]) if len(found) > limit else None)

    async def launches_of_step(self, key: RunKey, step: int) -> Mapping[str, int]:
        """See `SpanReader`."""
        table = await self._clickhouse.select(LAUNCHES_OF_STEP, {**_of(key), "step": step})
        return {record["launch"]: record["world_size"] for record in table.records()}

    async def step_spans(self, key: RunKey, launch: str, *, step: int, rank: int) -> Table:
        """See `SpanReader`."""
        return await self._clickhouse.select(STEP_SPANS, {**_of(key), "step": step, "launch": launch, "rank": rank})

    async def step_times(self, key: RunKey, launch: str, *, steps: int, cells: int) -> Sequence[StepTimes]:
        """See `SpanReader`."""
        where: dict[str, Value] = {**_of(key), "launch": launch}
        last_step, world_size = (column[0] for column in (await self._clickhouse.select(STEP_RANGE, where)).columns)
        wanted = max(1, min(steps, cells // max(1, world_size)))
        table = await self._clickhouse.select(STEP_TIMES, {**where, "first": max(0, last_step - wanted + 1)})
        return [StepTimes(*row) for row in zip(*table.columns, strict=True)]


def _of(key: RunKey) -> dict[str, Value]:
    return {"project": key.project, "run": key.run}


def _step_key(record: Record) -> Key:
    return record["step_of"], record["launch"]
