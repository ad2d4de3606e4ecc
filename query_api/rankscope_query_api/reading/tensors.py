"""Tensor statistics, in the total order that TQL has too."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from rankscope_query_api.answers import Key
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.values import Record, RunKey, Slice, TensorFilter, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"

_CONDITIONS = {
    "path": "(name = {path:String} OR module = {path:String} OR startsWith(name, concat({path:String}, '.')))",
    "step": "toInt64(ifNull(step, -1)) = {step:Int64}",
    "rank": "rank = {rank:Int32}",
    "role": "role = {role:UInt8}",
}

_ORDER = "ifNull(step, -1), if(isNull(step), time, 0), microstep, phase, seq, idx, rank, incarnation_hex"

TENSORS = f"""
SELECT *, lower(hex(launch_id)) AS launch, lower(hex(incarnation)) AS incarnation_hex
FROM tensor_stats
WHERE {_OF_RUN} /*where*/
    AND ({_ORDER}) > (
        {{a_step:Int64}}, {{a_time:Int64}}, {{a_microstep:Int64}}, {{a_phase:Int64}}, {{a_seq:UInt64}},
        {{a_idx:UInt64}}, {{a_rank:Int64}}, {{a_incarnation:String}})
ORDER BY {_ORDER}
LIMIT {{limit:UInt32}}"""

TENSOR_COUNT = f"SELECT count() AS total FROM tensor_stats WHERE {_OF_RUN} /*where*/"

_NONFINITE = f"""
FROM tensor_stats
WHERE {_OF_RUN} AND launch_id = unhex({{launch:String}}) AND toInt64(ifNull(step, -1)) = {{step:Int64}}
    AND nonfinite_count > 0"""

NONFINITE = f"""
SELECT rank, microstep, phase, role, name, module, layer_index, nonfinite_count,
    lower(hex(incarnation)) AS incarnation_hex
{_NONFINITE}
ORDER BY {_ORDER}
LIMIT {{limit:UInt32}}"""

NONFINITE_COUNT = f"SELECT count() AS total {_NONFINITE}"


def _filtered(statement: str, where: TensorFilter) -> tuple[str, dict[str, Value]]:
    values: dict[str, Value] = {
        name: value
        for name, value in (("path", where.path), ("step", where.step), ("rank", where.rank), ("role", where.role))
        if value is not None
    }
    return statement.replace("/*where*/", "".join(f" AND {_CONDITIONS[name]}" for name in values)), values


_EVERY = TensorFilter("a", 1, 1, 1)

STATEMENTS = (
    *(_filtered(TENSORS, _EVERY)[0], _filtered(TENSOR_COUNT, _EVERY)[0]),
    *(_filtered(TENSORS, TensorFilter())[0], NONFINITE, NONFINITE_COUNT),
)
"""Every statement of this module, for the test that reads them."""


class ClickHouseTensors:
    """`TensorReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def tensors(self, key: RunKey, where: TensorFilter, *, limit: int, after: Key | None) -> Slice[Record]:
        """See `TensorReader`."""
        of_run: dict[str, Value] = {"project": key.project, "run": key.run}
        statement, values = _filtered(TENSOR_COUNT, where)
        total = (await self._clickhouse.select(statement, {**of_run, **values})).columns[0][0]
        names = ("step", "time", "microstep", "phase", "seq", "idx", "rank", "incarnation")
        start = dict(zip((f"a_{name}" for name in names), after or (-2, 0, 0, 0, 0, 0, -2, ""), strict=True))
        statement, values = _filtered(TENSORS, where)
        table = await self._clickhouse.select(statement, {**of_run, **values, **start, "limit": limit + 1})
        found = table.records()
        return Slice(found[:limit], total, _key(found[limit - 1]) if len(found) > limit else None)

    async def nonfinite(self, key: RunKey, launch: str, *, step: int, limit: int) -> Slice[Record]:
        """See `TensorReader`."""
        where: dict[str, Value] = {"project": key.project, "run": key.run, "launch": launch, "step": step}
        total = (await self._clickhouse.select(NONFINITE_COUNT, where)).columns[0][0]
        table = await self._clickhouse.select(NONFINITE, {**where, "limit": limit})
        return Slice(table.records(), total)


def _key(record: Record) -> Key:
    place = (-1, record["time"]) if record["step"] is None else (record["step"], 0)
    return (
        *place,
        *(record["microstep"], record["phase"], record["seq"], record["idx"], record["rank"]),
        record["incarnation_hex"],
    )
