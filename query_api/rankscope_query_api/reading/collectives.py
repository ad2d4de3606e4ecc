"""Collectives as ranks sent them: a list, and the arrivals of some at their ranks."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_proto.names import COLLECTIVE_FLAGS
from rankscope_query_api.answers import Key
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.meetings import CollectiveFilter, Matched
from rankscope_query_api.values import Record, RunKey, Slice, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"
_OF_LAUNCH = f"{_OF_RUN} AND launch_id = unhex({{launch:String}})"
_STEP = "toInt64(ifNull(step, -1))"
_IS_MATCHED = f"cseq > 0 AND bitAnd(flags, {COLLECTIVE_FLAGS['p2p']}) = 0 AND rank >= 0"

_ROW = """rank, node, step, group, group_ranks, cseq, op, entry, exit, entry_source, exit_source, device, bytes, dtype,
    shape, reduction, microstep, phase, module, flags, seq, idx, lower(hex(launch_id)) AS launch,
    lower(hex(incarnation)) AS incarnation_hex"""

ARRIVALS = f"""
SELECT *
FROM (
    SELECT {_ROW}
    FROM collectives
    WHERE {_OF_LAUNCH} AND {_IS_MATCHED} AND (group, group_ranks, cseq) IN (
        SELECT one.1, one.2, one.3
        FROM (SELECT arrayJoin(arrayZip(
            {{groups:Array(String)}}, {{of_ranks:Array(String)}}, {{numbers:Array(UInt64)}})) AS one)
    )
    ORDER BY incarnation_hex, seq, idx
    LIMIT 1 BY incarnation_hex, seq, idx
)
ORDER BY group, group_ranks, cseq, rank, incarnation_hex, seq, idx
LIMIT {{limit:UInt32}}"""

PASSED = f"""
SELECT group, rank, max(cseq) AS last
FROM collectives
WHERE {_OF_LAUNCH} AND {_IS_MATCHED} AND has({{groups:Array(String)}}, group)
GROUP BY group, rank
ORDER BY group, rank"""

_CONDITIONS = {
    "launch": "launch_id = unhex({launch:String})",
    "step": f"{_STEP} = {{step:Int64}}",
    "group": "group = {group:String}",
    "cseq": "cseq = {cseq:UInt64}",
    "rank": "rank = {rank:Int32}",
}
_ORDER = "ifNull(step, -1), group, cseq, rank, incarnation_hex, seq, idx"

COLLECTIVES = f"""
SELECT {_ROW}
FROM collectives
WHERE {_OF_RUN} /*where*/
    AND ({_ORDER}) > (
        {{a_step:Int64}}, {{a_group:String}}, {{a_cseq:UInt64}}, {{a_rank:Int64}}, {{a_incarnation:String}},
        {{a_seq:UInt64}}, {{a_idx:UInt64}})
ORDER BY {_ORDER}
LIMIT {{limit:UInt32}}"""

COUNT = f"SELECT count() AS total FROM collectives WHERE {_OF_RUN} /*where*/"


def _filtered(statement: str, where: CollectiveFilter) -> tuple[str, dict[str, Value]]:
    values: dict[str, Value] = {name: value for name in _CONDITIONS if (value := getattr(where, name)) is not None}
    return statement.replace("/*where*/", "".join(f" AND {_CONDITIONS[name]}" for name in values)), values


STATEMENTS = (
    *(ARRIVALS, PASSED),
    *(
        _filtered(statement, where)[0]
        for statement in (COLLECTIVES, COUNT)
        for where in (CollectiveFilter("a", 1, "a", 1, 1), CollectiveFilter())
    ),
)
"""Every statement of this module, for the test that reads them."""


class ClickHouseCollectives:
    """`CollectiveReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def arrivals(self, key: RunKey, launch: str, *, of: Matched, limit: int) -> Sequence[Record]:
        """See `CollectiveReader`."""
        if not of:
            return []
        groups, ranks, numbers = map(list, zip(*of, strict=True))
        where: dict[str, Value] = {
            **_launch(key, launch),
            "groups": groups,
            "of_ranks": ranks,
            "numbers": numbers,
            "limit": limit,
        }
        return (await self._clickhouse.select(ARRIVALS, where)).records()

    async def passed(self, key: RunKey, launch: str, *, groups: Sequence[str]) -> Sequence[Record]:
        """See `CollectiveReader`."""
        if not groups:
            return []
        return (await self._clickhouse.select(PASSED, {**_launch(key, launch), "groups": groups})).records()

    async def collectives(
        self, key: RunKey, where: CollectiveFilter, *, limit: int, after: Key | None
    ) -> Slice[Record]:
        """See `CollectiveReader`."""
        statement, values = _filtered(COUNT, where)
        total = (await self._clickhouse.select(statement, {**_run(key), **values})).columns[0][0]
        names = ("step", "group", "cseq", "rank", "incarnation", "seq", "idx")
        start = dict(zip((f"a_{name}" for name in names), after or (-2, "", 0, -2, "", 0, 0), strict=True))
        statement, values = _filtered(COLLECTIVES, where)
        table = await self._clickhouse.select(statement, {**_run(key), **values, **start, "limit": limit + 1})
        found = table.records()
        return Slice(found[:limit], total, _key(found[limit - 1]) if len(found) > limit else None)


def _run(key: RunKey) -> dict[str, Value]:
    return {"project": key.project, "run": key.run}


def _launch(key: RunKey, launch: str) -> dict[str, Value]:
    return {**_run(key), "launch": launch}


def _key(record: Record) -> Key:
    step = -1 if record["step"] is None else record["step"]
    columns = ("group", "cseq", "rank", "incarnation_hex", "seq", "idx")
    return step, *(record[name] for name in columns)
