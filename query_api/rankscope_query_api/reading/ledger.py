"""What arrived and what should have: the ledger against the tables and the declared losses."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rankscope_proto.columns import SECTIONS
from rankscope_proto.names import EventKind, GapClass, ProcessRole
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.values import LedgerEntry, Record, RunKey

_SUMS = ", ".join(
    f"max(emitted_{section.name}) AS emitted_{section.name}_max, sum(rows_{section.name}) AS rows_{section.name}_sum"
    for section in SECTIONS
)

# A batch that is stored twice is counted once: `distinct` says so, and the sums are over distinct batches.
ENTRIES = f"""
SELECT
    lower(hex(incarnation)) AS incarnation_hex,
    lower(hex(any(launch_id))) AS launch,
    any(rank) AS rank_of,
    any(process_role) AS role,
    sum(copies) AS batches,
    count() AS distinct,
    max(seq) AS last_seq,
    max(if(received > 0, received, sealed)) AS heard_ns,
    toUnixTimestamp64Nano(now64(9)) - heard_ns AS silent_ns,
    {_SUMS}
FROM (
    SELECT *, count() OVER (PARTITION BY incarnation, seq) AS copies,
        row_number() OVER (PARTITION BY incarnation, seq) AS copy
    FROM batches
    WHERE project = {{project:String}} AND run_id = {{run:String}}
)
WHERE copy = 1
GROUP BY incarnation
ORDER BY rank_of, incarnation_hex"""

MISSING = """
SELECT incarnation_hex, before + 1 AS first, toInt64(seq) - 1 AS last
FROM (
    SELECT
        lower(hex(incarnation)) AS incarnation_hex,
        seq,
        lagInFrame(toInt64(seq), 1, -1) OVER (
            PARTITION BY incarnation ORDER BY seq ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
        ) AS before
    FROM batches
    WHERE project = {project:String} AND run_id = {run:String}
)
WHERE toInt64(seq) > before + 1
ORDER BY incarnation_hex, first
LIMIT 20 BY incarnation_hex"""

LOST = f"""
SELECT lower(hex(incarnation)) AS incarnation_hex, data_kind AS section, sum(count) AS rows
FROM gaps
WHERE project = {{project:String}} AND run_id = {{run:String}} AND class = {GapClass.LOST.code}
GROUP BY incarnation, data_kind"""

ENDED = f"""
SELECT DISTINCT lower(hex(incarnation)) AS incarnation_hex
FROM events
WHERE project = {{project:String}} AND run_id = {{run:String}} AND kind = '{EventKind.END_OF_STREAM.value}'"""


def _stored(section: str, table: str) -> str:
    return f"""
SELECT lower(hex(incarnation)) AS incarnation_hex, '{section}' AS section, count() AS rows
FROM {table}
WHERE project = {{project:String}} AND run_id = {{run:String}}
GROUP BY incarnation"""


STORED = " UNION ALL ".join(_stored(section.name, section.table) for section in SECTIONS)

STATEMENTS = (ENTRIES, MISSING, LOST, ENDED, STORED)
"""Every statement of this module, for the test that reads them."""


class ClickHouseLedger:
    """`LedgerReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def entries(self, key: RunKey) -> Sequence[LedgerEntry]:
        """See `LedgerReader`."""
        where = {"project": key.project, "run": key.run}
        tables = await asyncio.gather(*(self._clickhouse.select(statement, where) for statement in STATEMENTS))
        entries, missing, lost, ended, stored = (table.records() for table in tables)
        ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for record in missing:
            ranges[record["incarnation_hex"]].append((record["first"], record["last"]))
        closed = {record["incarnation_hex"] for record in ended}
        sums = _by_incarnation(stored), _by_incarnation(lost)
        return [_entry(record, ranges, closed=closed, sums=sums) for record in entries]


_Sums = dict[str, dict[str, int]]


def _by_incarnation(records: Sequence[Record]) -> _Sums:
    found: _Sums = defaultdict(dict)
    for record in records:
        found[record["incarnation_hex"]][record["section"]] = record["rows"] or 0
    return found


def _entry(
    record: Record, ranges: dict[str, list[tuple[int, int]]], *, closed: set[str], sums: tuple[_Sums, _Sums]
) -> LedgerEntry:
    incarnation: str = record["incarnation_hex"]
    stored, lost = sums
    values: dict[str, Any] = {
        "emitted": {section.name: record[f"emitted_{section.name}_max"] for section in SECTIONS},
        "recorded": {section.name: record[f"rows_{section.name}_sum"] for section in SECTIONS},
        "stored": {section.name: stored[incarnation].get(section.name, 0) for section in SECTIONS},
    }
    return LedgerEntry(
        incarnation=incarnation,
        launch_id=record["launch"],
        rank=record["rank_of"],
        process_role=ProcessRole.of(record["role"]),
        batches=record["batches"],
        distinct=record["distinct"],
        last_seq=record["last_seq"],
        missing=ranges[incarnation],
        lost=lost[incarnation],
        ended=incarnation in closed,
        heard_ns=record["heard_ns"],
        silent_ns=record["silent_ns"],
        **values,
    )
