"""Findings of rules in `events`: read like any row, and the one thing that the query service writes.

A finding is a batch of its own, as a tier's statements are: its incarnation follows from what was found, so the same
finding is one batch, whoever finds it how often. A store that has it is not written to; two services that find it at
once write under one token, of which the store takes the first.
"""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

import time

from rankscope_proto.columns import SCHEMA_VERSION
from rankscope_proto.identity import week_of
from rankscope_proto.names import EventKind, ProcessRole
from rankscope_proto.v1.batch_pb2 import Batch
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.keeping import KeptFinding
from rankscope_query_api.values import Record, RunKey, Slice, Value

_OF_RUN = "project = {project:String} AND run_id = {run:String}"

_KEPT = f"""
FROM events
WHERE {_OF_RUN} AND kind = '{EventKind.FINDING.value}'
    AND ({{launch:String}} = '' OR lower(hex(launch_id)) = {{launch:String}})"""

KEPT = f"""
SELECT * FROM (
    SELECT lower(hex(launch_id)) AS launch, lower(hex(incarnation)) AS finding_id, time, name, severity, step, payload
    {_KEPT}
    ORDER BY incarnation, seq, idx
    LIMIT 1 BY incarnation
)
ORDER BY time DESC, finding_id
LIMIT {{limit:UInt32}}"""

COUNT = f"SELECT uniqExact(incarnation) AS total {_KEPT}"

THERE = f"SELECT count() AS rows FROM batches WHERE {_OF_RUN} AND incarnation = unhex({{incarnation:String}})"

_STEP_BIT = 1
"""Of `events.present`."""

STATEMENTS = (KEPT, COUNT, THERE)
"""Every statement of this module, for the test that reads them."""


class ClickHouseFindings:
    """`FindingKeeper` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def kept(self, key: RunKey, *, launch: str | None, limit: int) -> Slice[Record]:
        """See `FindingKeeper`."""
        where: dict[str, Value] = {"project": key.project, "run": key.run, "launch": launch or ""}
        total = int((await self._clickhouse.select(COUNT, where)).columns[0][0])
        if not total:
            return Slice([], 0)
        return Slice((await self._clickhouse.select(KEPT, {**where, "limit": limit})).records(), total)

    async def keep(self, key: RunKey, finding: KeptFinding) -> bool:
        """See `FindingKeeper`."""
        incarnation = finding.incarnation.hex()
        where: dict[str, Value] = {"project": key.project, "run": key.run, "incarnation": incarnation}
        if int((await self._clickhouse.select(THERE, where)).columns[0][0]):
            return False
        payload = batch_of(key, finding, now_ns=time.time_ns()).SerializeToString()
        await self._clickhouse.insert(_varint(len(payload)) + payload, token=f"finding:{incarnation}")
        return True


def batch_of(key: RunKey, finding: KeptFinding, *, now_ns: int) -> Batch:
    """The one batch of a finding: of the launch, of no rank, and sealed when what was found began.

    Args:
        key: The run.
        finding: What was found.
        now_ns: Now, ns since the epoch.
    """
    message = Batch(strings=["", EventKind.FINDING.value, finding.rule], received=now_ns)
    header = message.header
    header.schema_version = SCHEMA_VERSION
    header.project, header.run_id, header.launch_id = key.project, key.run, bytes.fromhex(finding.launch)
    header.process_role = ProcessRole.SERVER.code
    header.rank = header.local_rank = header.worker_index = header.parent_rank = -1
    header.incarnation = finding.incarnation
    header.sealed = finding.time_ns
    header.week = week_of(finding.time_ns, now_ns=now_ns)
    header.emitted_events = 1
    events = message.events
    events.time.append(finding.time_ns)
    events.kind.append(1)
    events.name.append(2)
    events.severity.append(finding.severity)
    events.payload.append(finding.payload)
    events.step.append(finding.step or 0)
    events.present.append(0 if finding.step is None else _STEP_BIT)
    return message


def _varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head += bytes([number & 127 | 128])
        number >>= 7
    return head + bytes([number])
