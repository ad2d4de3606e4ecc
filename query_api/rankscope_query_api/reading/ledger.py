"""What arrived and what should have: the ledger against the tables and the declared losses."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from rankscope_proto.columns import SECTIONS
from rankscope_proto.names import EventKind, GapCause, GapClass, ProcessRole
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.losses import Arrived, Loss, Range, by_incarnation, distinct, standing
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
ORDER BY incarnation_hex, first"""

# Whose rows: those of the process that says so, or those of the one it names (an agent for a trainer that is gone).
_CONCERNED = """if(isNull(incarnation_hi), lower(hex(incarnation)), concat(
        leftPad(lower(hex(ifNull(incarnation_hi, 0))), 16, '0'), leftPad(lower(hex(ifNull(incarnation_lo, 0))), 16, '0')
    ))"""

LOST = f"""
SELECT
    {_CONCERNED} AS incarnation_hex,
    data_kind AS section,
    cause,
    seq_from AS first,
    ifNull(seq_to, seq_from) AS last,
    if(isNull(seq_from), sum(ifNull(count, 0)), max(ifNull(count, 0))) AS rows,
    lower(hex(any(launch_id))) AS launch,
    any(rank) AS rank_of,
    max(start) AS told_ns
FROM gaps
WHERE project = {{project:String}} AND run_id = {{run:String}} AND class = {GapClass.LOST.code}
GROUP BY incarnation_hex, section, cause, first, last
ORDER BY incarnation_hex, section, first, last, cause"""

_THERE = ", ".join(f"sum(rows_{section.name}) AS {section.name}" for section in SECTIONS)

# What the batches hold that are there of a range that was declared lost, for the few ranges of which some are.
THERE = f"""
SELECT place, {_THERE}
FROM (
    SELECT *, lower(hex(incarnation)) AS incarnation_hex
    FROM batches
    WHERE project = {{project:String}} AND run_id = {{run:String}}
    ORDER BY incarnation, seq
    LIMIT 1 BY incarnation, seq
)
ARRAY JOIN arrayFilter(
    number -> arrayElement({{incarnations:Array(String)}}, number) = incarnation_hex
        AND seq >= arrayElement({{firsts:Array(UInt64)}}, number)
        AND seq <= arrayElement({{lasts:Array(UInt64)}}, number),
    arrayEnumerate({{firsts:Array(UInt64)}})
) AS place
GROUP BY place"""

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

_AT_ONCE = (ENTRIES, MISSING, LOST, ENDED, STORED)

STATEMENTS = (*_AT_ONCE, THERE)
"""Every statement of this module, for the test that reads them."""

_Sums = Mapping[str, Mapping[str, int]]


class ClickHouseLedger:
    """`LedgerReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def entries(self, key: RunKey) -> Sequence[LedgerEntry]:
        """See `LedgerReader`."""
        where = {"project": key.project, "run": key.run}
        tables = await asyncio.gather(*(self._clickhouse.select(statement, where) for statement in _AT_ONCE))
        entries, missing, stated, ended, stored = (table.records() for table in tables)
        arrived = _arrived(entries, missing)
        losses = by_incarnation(distinct(map(_loss, stated)))
        partial = [
            (loss.incarnation, loss.batches)
            for of_one in losses.values()
            for loss in of_one
            if loss.batches and arrived.get(loss.incarnation, NOTHING).is_partial(loss.batches)
        ]
        found = _Found(
            arrived=arrived,
            losses=losses,
            there=await self._there(where, list(dict.fromkeys(partial))),
            ended={record["incarnation_hex"] for record in ended},
            stored=_by_incarnation(stored),
        )
        known = {record["incarnation_hex"] for record in entries}
        unheard = {record["incarnation_hex"]: record for record in stated if record["incarnation_hex"] not in known}
        return [*map(found.entry, entries), *map(found.unheard, unheard.values())]

    async def _there(self, where: Mapping[str, str], ranges: Sequence[tuple[str, Range]]) -> "_There":
        """Rows by section in the batches that are there of these ranges."""
        found: _There = {}
        for begin in range(0, len(ranges), _RANGES_AT_ONCE):
            some = ranges[begin : begin + _RANGES_AT_ONCE]
            parameters = {
                "incarnations": [incarnation for incarnation, _ in some],
                "firsts": [first for _, (first, _) in some],
                "lasts": [last for _, (_, last) in some],
            }
            table = await self._clickhouse.select(THERE, {**where, **parameters})
            found |= {some[record["place"] - 1]: record for record in table.records()}
        return found


_There = dict[tuple[str, Range], Record]

_RANGES_AT_ONCE = 200

NOTHING = Arrived(-1, ())
"""A process of which no batch is there."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What the statements found, by incarnation."""

    arrived: Mapping[str, Arrived]
    losses: Mapping[str, Sequence[Loss]]
    there: _There
    ended: AbstractSet[str]
    stored: _Sums

    def entry(self, record: Record) -> LedgerEntry:
        """What is known of a process that was heard."""
        incarnation: str = record["incarnation_hex"]
        stored = self.stored.get(incarnation, {})
        emitted = {section.name: record[f"emitted_{section.name}_max"] for section in SECTIONS}
        values: dict[str, Any] = {
            "recorded": {section.name: record[f"rows_{section.name}_sum"] for section in SECTIONS},
            "stored": {section.name: stored.get(section.name, 0) for section in SECTIONS},
        }
        return LedgerEntry(
            incarnation=incarnation,
            launch_id=record["launch"],
            rank=record["rank_of"],
            process_role=ProcessRole.of(record["role"]),
            batches=record["batches"],
            distinct=record["distinct"],
            last_seq=record["last_seq"],
            ended=incarnation in self.ended,
            heard_ns=record["heard_ns"],
            silent_ns=record["silent_ns"],
            **values,
            **self._accounted(incarnation, emitted),
        )

    def unheard(self, stated: Record) -> LedgerEntry:
        """What is known of a process of which only its losses are: each batch it sent was set aside."""
        incarnation: str = stated["incarnation_hex"]
        nothing = {section.name: 0 for section in SECTIONS}
        values: dict[str, Any] = {"recorded": nothing, "stored": nothing}
        return LedgerEntry(
            incarnation=incarnation,
            launch_id=stated["launch"],
            rank=stated["rank_of"],
            process_role="",
            batches=0,
            distinct=0,
            last_seq=-1,
            ended=False,
            heard_ns=stated["told_ns"],
            silent_ns=0,
            **values,
            **self._accounted(incarnation, nothing),
        )

    def _accounted(self, incarnation: str, emitted: Mapping[str, int]) -> dict[str, Any]:
        """The fields that what was declared lost decides.

        The last batch that is there says what was emitted up to it. What was in batches behind it, nobody but the
        statements of their loss knows.
        """
        arrived, losses = self.arrived.get(incarnation, NOTHING), self.losses.get(incarnation, ())
        causes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        total = dict(emitted)
        for loss in losses:
            there = self.there.get((loss.incarnation, loss.batches or (0, 0)), {})
            rows = standing(loss, arrived, rows_there=there.get(loss.section, 0))
            if rows:
                causes[loss.section][loss.cause] += rows
            if loss.batches and loss.batches[0] > arrived.last and loss.section in total:
                total[loss.section] += rows
        ranges = [loss.batches for loss in losses if loss.batches]
        missing = arrived.unexcused(ranges)
        return {
            "emitted": total,
            "lost": {section: sum(by_cause.values()) for section, by_cause in causes.items()},
            "causes": causes,
            "missing": missing,
            "excused": arrived.missing_count - sum(last - first + 1 for first, last in missing),
            "is_gone": arrived is NOTHING or any(loss.cause == GapCause.TAIL_UNKNOWN for loss in losses),
        }


def _arrived(entries: Sequence[Record], missing: Sequence[Record]) -> dict[str, Arrived]:
    holes: dict[str, list[Range]] = defaultdict(list)
    for record in missing:
        holes[record["incarnation_hex"]].append((record["first"], record["last"]))
    return {
        record["incarnation_hex"]: Arrived(record["last_seq"], holes[record["incarnation_hex"]]) for record in entries
    }


def _loss(record: Record) -> Loss:
    batches = None if record["first"] is None else (record["first"], max(record["first"], record["last"]))
    return Loss(record["incarnation_hex"], record["section"], record["cause"], record["rows"], batches)


def _by_incarnation(records: Sequence[Record]) -> _Sums:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for record in records:
        found[record["incarnation_hex"]][record["section"]] = record["rows"] or 0
    return found
