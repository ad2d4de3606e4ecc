"""The first non-finite values of a launch's processes, and the collectives between them."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_proto.names import TENSOR_FLAGS, EventKind, ProcessRole, Role
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.nonfinite import FirstNonfinite, Looked, Passage, Passing
from rankscope_query_api.values import Record, RunKey, Value

MOST_PASSAGES = 20_000
"""Collectives that are read of the steps concerned, the earliest: of 20 steps with a thousand each."""

_OF_LAUNCH = "project = {project:String} AND run_id = {run:String} AND launch_id = unhex({launch:String})"

_SKIPPED_STEPS = f"""
SELECT incarnation, toInt64(ifNull(step, -1)) FROM events
WHERE {_OF_LAUNCH} AND kind = '{EventKind.STEP_SKIPPED.value}'"""

# A step that the loss scaler left out overflowed on purpose, in gradients and in what is before them.
FIRSTS = f"""
SELECT
    rank,
    lower(hex(incarnation)) AS incarnation_hex,
    step,
    microstep,
    phase,
    role,
    name,
    module,
    layer_index,
    time,
    flags,
    nonfinite_count
FROM tensor_stats
WHERE {_OF_LAUNCH} AND process_role = {ProcessRole.TRAINER.code}
    AND nonfinite_count > 0 AND bitAnd(flags, {TENSOR_FLAGS["skipped"]}) = 0
    AND toInt64(ifNull(step, -1)) >= {{first:Int64}}
    AND (incarnation, toInt64(ifNull(step, -1))) NOT IN ({_SKIPPED_STEPS})
ORDER BY ifNull(step, -1), microstep, phase, seq, idx, rank, incarnation
LIMIT 1 BY incarnation"""

PASSAGES = f"""
SELECT
    group,
    cseq,
    any(op) AS operation,
    any(step) AS at_step,
    groupArray((rank, lower(hex(incarnation)), entry, exit)) AS passings
FROM collectives
WHERE {_OF_LAUNCH} AND cseq > 0
    AND toInt64(ifNull(step, -1)) >= {{first:Int64}} AND toInt64(ifNull(step, -1)) <= {{last:Int64}}
    AND incarnation IN (SELECT unhex(arrayJoin({{incarnations:Array(String)}})))
GROUP BY group, cseq
HAVING uniqExact(incarnation) > 1
ORDER BY at_step, group, cseq
LIMIT {MOST_PASSAGES}"""

LOOKED = f"""
SELECT
    uniqExactIf(name, role = {Role.ACTIVATION.code} AND toInt64(ifNull(step, -1)) = {{step:Int64}}) AS activations,
    maxIf(step, role = {Role.WEIGHT.code} AND (module = {{module:String}} OR startsWith(module, {{below:String}})))
        AS weights_step
FROM tensor_stats
WHERE {_OF_LAUNCH} AND incarnation = unhex({{incarnation:String}})
    AND toInt64(ifNull(step, -1)) <= {{step:Int64}} AND nonfinite_count = 0
    AND (toInt64(ifNull(step, -1)) = {{step:Int64}} OR role = {Role.WEIGHT.code})
    AND time <= {{time:Int64}}"""

STATEMENTS = (FIRSTS, PASSAGES, LOOKED)
"""Every statement of this module, for the test that reads them."""


class ClickHouseNonfinite:
    """`NonfiniteReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def firsts(self, key: RunKey, launch: str, *, first: int) -> Sequence[FirstNonfinite]:
        """See `NonfiniteReader`."""
        rows = (await self._clickhouse.select(FIRSTS, {**_of(key, launch), "first": first})).records()
        return sorted(map(_first, rows), key=lambda first: (first.rank, first.incarnation))

    async def passages(self, key: RunKey, launch: str, *, of: Sequence[FirstNonfinite]) -> Sequence[Passage]:
        """See `NonfiniteReader`."""
        if len(of) < 2:
            return []
        steps = [-1 if first.step is None else first.step for first in of]
        asked: dict[str, Value] = {
            "first": min(steps),
            "last": max(steps),
            "incarnations": sorted(first.incarnation for first in of),
        }
        rows = (await self._clickhouse.select(PASSAGES, {**_of(key, launch), **asked})).records()
        return [
            Passage(row["group"], row["cseq"], row["operation"], row["at_step"], _passings(row["passings"]))
            for row in rows
        ]

    async def looked(self, key: RunKey, launch: str, *, at: FirstNonfinite) -> Looked:
        """See `NonfiniteReader`."""
        asked: dict[str, Value] = {
            "incarnation": at.incarnation,
            "step": -1 if at.step is None else at.step,
            "time": at.time_ns,
            "module": at.module,
            "below": f"{at.module}.",
        }
        (row,) = (await self._clickhouse.select(LOOKED, {**_of(key, launch), **asked})).records()
        return Looked(row["activations"], row["weights_step"])


def _of(key: RunKey, launch: str) -> dict[str, Value]:
    return {"project": key.project, "run": key.run, "launch": launch}


def _first(row: Record) -> FirstNonfinite:
    return FirstNonfinite(
        rank=row["rank"],
        incarnation=row["incarnation_hex"],
        step=row["step"],
        microstep=row["microstep"],
        phase=row["phase"],
        role=row["role"],
        name=row["name"],
        module=row["module"],
        layer_index=row["layer_index"],
        time_ns=int(row["time"]),
        is_reduced=bool(row["flags"] & TENSOR_FLAGS["reduced"]),
        nonfinite=row["nonfinite_count"],
    )


def _passings(rows: Sequence[tuple[int, str, int, int | None]]) -> Sequence[Passing]:
    return [
        Passing(rank, incarnation, int(entry), None if end is None else int(end))
        for rank, incarnation, entry, end in rows
    ]
