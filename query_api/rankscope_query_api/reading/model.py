"""The watched model as a graph, and statistics of its tensors summed over ranks.

A process writes its modules when it watches, and again when the model has changed; the last writing holds. What was
written at one time belongs together, and its first row is the root: a run may watch several models.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_proto.names import TENSOR_FLAGS
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.profiles import COMBINING
from rankscope_query_api.values import ProfileFilter, Record, RunKey, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"
_OF_LAUNCH = f"{_OF_RUN} AND launch_id = unhex({{launch:String}})"

MODEL_LAUNCHES = f"SELECT DISTINCT lower(hex(launch_id)) AS launch FROM modules WHERE {_OF_RUN}"

MODULES = f"""
SELECT
    path,
    parent,
    class,
    type,
    layer_index,
    parameters,
    parameter_shapes,
    parameter_dtypes,
    parameter_trainable,
    aliases,
    arraySort(groupUniqArray(rank)) AS ranks,
    max(time) AS last_time,
    min((seq, idx)) AS place
FROM modules
WHERE {_OF_LAUNCH} AND (incarnation, time) IN (
    SELECT incarnation, max(time)
    FROM (
        SELECT incarnation, time, argMin(path, (seq, idx)) AS root
        FROM modules
        WHERE {_OF_LAUNCH}
        GROUP BY incarnation, time
    )
    GROUP BY incarnation, root
)
GROUP BY path, parent, class, type, layer_index, parameters, parameter_shapes, parameter_dtypes, parameter_trainable,
    aliases
ORDER BY min(place) OVER (PARTITION BY path), path, length(ranks) DESC, last_time DESC
LIMIT {{limit:UInt32}}"""

_LOCAL, _REDUCED = TENSOR_FLAGS["local"], TENSOR_FLAGS["reduced"]

_ASKED = f"""{_OF_LAUNCH} AND role = {{role:UInt8}}
    AND toInt64(ifNull(step, -1)) BETWEEN {{from:Int64}} AND {{to:Int64}}
    AND (empty({{ranks:Array(Int32)}}) OR has({{ranks:Array(Int32)}}, rank))
    AND bitAnd(flags, {{flag:UInt32}}) = {{flag:UInt32}}"""

# Of several rows of a rank's tensor in a step the last counts: the accumulated gradient, the last call; and of a
# gradient the reduced one.
_PROFILE = f"""
SELECT
    step_number,
    name,
    module,
    any(layer) AS layer_index,
    any(kind) AS layer_type,
    count() AS ranks,
    sum(numel) AS held,
    max(numel_of_all) AS numel_global,
    max(position(placed, 'S(') > 0) AS is_sharded,
    max(position(placed, 'P') > 0) AS is_partial,
    sum(value) AS values,
    sum(value * value) AS squares,
    sum(value * numel) AS weighted,
    sum(value * value * numel) AS rms_squares,
    sum((value * value + centre * centre) * numel) AS weighted_squares,
    sum(centre * numel) AS means,
    if(held > 0, means / held, 0) AS mean,
    quantileExactLow(value) AS middle,
    min(value) AS low,
    max(value) AS high,
    sumForEach(histogram) AS counts
FROM (
    SELECT
        toInt64(ifNull(step, -1)) AS step_number,
        name,
        module,
        rank,
        argMax(tuple(layer_index, layer_type, numel_local, numel_global, placement, /*value*/), last) AS found,
        found.1 AS layer,
        found.2 AS kind,
        found.3 AS numel,
        found.4 AS numel_of_all,
        found.5 AS placed,
        ifNull(found.6, 0) AS value,
        ifNull(found.7, 0) AS centre,
        found.8 AS histogram
    FROM (
        SELECT *, (bitAnd(flags, {_REDUCED}), microstep, call, time) AS last
        FROM tensor_stats
        WHERE {_ASKED} AND /*present*/
    )
    GROUP BY step_number, name, module, rank
)
GROUP BY step_number, name, module
ORDER BY step_number, name
LIMIT {{limit:UInt32}}"""


def _profile(statistic: str) -> str:
    """The statement of one statistic; "" stands for the histogram."""
    value, present = "toFloat64(zero_count), 0., log2_hist", "notEmpty(log2_hist)"
    if statistic:
        value = f"toFloat64({statistic}), toFloat64(mean), emptyArrayUInt64()"
        present = f"isNotNull({statistic})"
    return _PROFILE.replace("/*value*/", value).replace("/*present*/", present)


PROFILES = {statistic: _profile(statistic) for statistic in (*COMBINING, "")}

LAST_STEP = f"""
SELECT max(step) AS last_step
FROM tensor_stats
WHERE {_OF_LAUNCH} AND role = {{role:UInt8}} AND /*present*/"""

LAST_STEPS = {
    statistic: LAST_STEP.replace("/*present*/", f"isNotNull({statistic})" if statistic else "notEmpty(log2_hist)")
    for statistic in PROFILES
}

PROFILE_LAUNCHES = f"SELECT DISTINCT lower(hex(launch_id)) AS launch FROM tensor_stats WHERE {_OF_RUN}"

STATEMENTS = (MODEL_LAUNCHES, MODULES, PROFILE_LAUNCHES, *PROFILES.values(), *LAST_STEPS.values())
"""Every statement of this module, for the test that reads them."""


class ClickHouseModel:
    """`ModelReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def launches(self, key: RunKey, *, of_tensors: bool) -> Sequence[str]:
        """See `ModelReader`."""
        statement = PROFILE_LAUNCHES if of_tensors else MODEL_LAUNCHES
        table = await self._clickhouse.select(statement, {"project": key.project, "run": key.run})
        return [row["launch"] for row in table.records()]

    async def modules(self, key: RunKey, launch: str, *, limit: int) -> Sequence[Record]:
        """See `ModelReader`."""
        where: dict[str, Value] = {"project": key.project, "run": key.run, "launch": launch, "limit": limit}
        return (await self._clickhouse.select(MODULES, where)).records()

    async def last_step(self, key: RunKey, launch: str, *, statistic: str, role: int) -> int | None:
        """See `ModelReader`."""
        where: dict[str, Value] = {"project": key.project, "run": key.run, "launch": launch, "role": role}
        return (await self._clickhouse.select(LAST_STEPS[_column(statistic)], where)).columns[0][0]

    async def profile(
        self, key: RunKey, launch: str, *, statistic: str, where: ProfileFilter, limit: int
    ) -> Sequence[Record]:
        """See `ModelReader`."""
        flag = {"": 0, "local": _LOCAL, "reduced": _REDUCED}[where.reduction]
        values: dict[str, Value] = {
            "project": key.project,
            "run": key.run,
            "launch": launch,
            "limit": limit,
            "flag": flag,
            "role": where.role,
            "from": where.first_step,
            "to": where.last_step,
            "ranks": list(where.ranks),
        }
        return (await self._clickhouse.select(PROFILES[_column(statistic)], values)).records()


def _column(statistic: str) -> str:
    return statistic if statistic in COMBINING else ""
