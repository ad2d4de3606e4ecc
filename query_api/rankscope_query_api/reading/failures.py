"""Trainers that ended as failed, and the error that ended each, from `runs` and `spans`."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_proto.names import ProcessRole, RunStatus, SpanStatus
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.failing import Failure
from rankscope_query_api.values import Record, RunKey, Value

_OF_LAUNCH = "project = {project:String} AND run_id = {run:String} AND launch_id = unhex({launch:String})"

FAILED = f"""
SELECT
    lower(hex(incarnation)) AS incarnation_hex,
    any(rank) AS rank_of,
    any(node) AS node_name,
    argMax(status, (seq, idx)) AS last_status,
    max(ifNull(end, start)) AS ended
FROM runs
WHERE {_OF_LAUNCH} AND process_role = {ProcessRole.TRAINER.code} AND rank >= 0
GROUP BY incarnation
HAVING last_status = {RunStatus.FAILED.code}
ORDER BY rank_of, incarnation_hex"""

# The error leaves the innermost span first and the outermost last: that one is the process's own end.
ERRORS = f"""
SELECT
    lower(hex(incarnation)) AS incarnation_hex,
    max(start + duration) AS failed,
    argMax((error_type, error_preview, ifNull(step, -1)), (start + duration, -depth)) AS error
FROM spans
WHERE {_OF_LAUNCH} AND status = {SpanStatus.ERROR.code} AND error_type != ''
    AND incarnation IN (SELECT unhex(arrayJoin({{incarnations:Array(String)}})))
GROUP BY incarnation"""

STATEMENTS = (FAILED, ERRORS)
"""Every statement of this module, for the test that reads them."""


class ClickHouseFailures:
    """`FailureReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def failures(self, key: RunKey, launch: str) -> Sequence[Failure]:
        """See `FailureReader`."""
        where: dict[str, Value] = {"project": key.project, "run": key.run, "launch": launch}
        failed = (await self._clickhouse.select(FAILED, where)).records()
        if not failed:
            return []
        asked: dict[str, Value] = {"incarnations": [row["incarnation_hex"] for row in failed]}
        errors = (await self._clickhouse.select(ERRORS, {**where, **asked})).records()
        by_process = {row["incarnation_hex"]: row for row in errors}
        return [_failure(row, by_process.get(row["incarnation_hex"])) for row in failed]


def _failure(row: Record, error: Record | None) -> Failure:
    error_type, message, step = error["error"] if error else ("", "", -1)
    return Failure(
        rank=row["rank_of"],
        incarnation=row["incarnation_hex"],
        node=row["node_name"],
        failed_ns=int(error["failed"] if error else row["ended"]),
        error_type=error_type,
        message=message,
        step=None if int(step) < 0 else int(step),
    )
