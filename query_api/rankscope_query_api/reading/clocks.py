"""What was measured of the clocks of a run's processes, from `clocks`."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_proto.names import ProcessRole
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.clock_reading import ClockHolder, ClockReading
from rankscope_query_api.values import RunKey

MOST_PIECES = 100
"""Of a window: of each the surest reading is taken, so that a run of days is no more to read than one of an hour."""

LEAST_PIECE_NS = 10 * 10**9
"""Agents measure about as often."""

_EARLIEST, _LATEST = -(2**62), 2**62

# Of what lies outside the window the nearest reading is taken on each side: a clock goes on between readings.
READINGS = """
SELECT
    concat(leftPad(lower(hex(of_hi)), 16, '0'), leftPad(lower(hex(of_lo)), 16, '0')) AS incarnation_hex,
    server,
    tupleElement(found, 1) AS agent,
    tupleElement(found, 2) AS at_ns,
    tupleElement(found, 3) AS offset_ns,
    tupleElement(found, 4) AS error_ns,
    tupleElement(found, 5) AS drift_of,
    tupleElement(found, 6) AS rtt_ns,
    tupleElement(found, 7) AS sample_count
FROM (
    SELECT
        of_hi,
        of_lo,
        server,
        time < {first:Int64} AS is_before,
        time > {last:Int64} AS is_behind,
        if(is_before OR is_behind, 0, intDiv(time - {first:Int64}, {piece:Int64})) AS piece,
        argMin(
            (lower(hex(incarnation)), time, offset, error, drift, rtt, samples),
            (multiIf(is_before, {first:Int64} - time, is_behind, time - {last:Int64}, error), seq)
        ) AS found
    FROM clocks
    WHERE project = {project:String} AND run_id = {run:String}
        AND ({launch:String} = '' OR lower(hex(launch_id)) = {launch:String})
    GROUP BY of_hi, of_lo, server, is_before, is_behind, piece
)
ORDER BY incarnation_hex, server, at_ns"""

SPAN = """
SELECT min(time) AS first, max(time) AS last, count() AS rows
FROM clocks
WHERE project = {project:String} AND run_id = {run:String}
    AND ({launch:String} = '' OR lower(hex(launch_id)) = {launch:String})"""

HOLDERS = f"""
SELECT
    lower(hex(incarnation)) AS incarnation_hex,
    if(any(process_role) = {ProcessRole.WORKER.code}, any(parent_rank), any(rank)) AS rank_of,
    any(process_role) = {ProcessRole.WORKER.code} AS is_worker,
    any(node) AS node_name,
    max(sealed) AS heard_ns
FROM batches
WHERE project = {{project:String}} AND run_id = {{run:String}} AND lower(hex(launch_id)) = {{launch:String}}
    AND process_role IN ({ProcessRole.TRAINER.code}, {ProcessRole.WORKER.code})
GROUP BY incarnation
ORDER BY rank_of, incarnation_hex"""

STATEMENTS = (READINGS, SPAN, HOLDERS)
"""Every statement of this module, for the test that reads them."""


class ClickHouseClocks:
    """`ClockReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def holders(self, key: RunKey, launch: str) -> Sequence[ClockHolder]:
        """See `ClockReader`."""
        table = await self._clickhouse.select(HOLDERS, {"project": key.project, "run": key.run, "launch": launch})
        return [
            ClockHolder(
                row["incarnation_hex"],
                row["rank_of"],
                is_worker=bool(row["is_worker"]),
                node=row["node_name"],
                heard_ns=row["heard_ns"],
            )
            for row in table.records()
        ]

    async def readings(
        self, key: RunKey, launch: str | None, *, between: tuple[int, int] | None = None
    ) -> Sequence[ClockReading]:
        """See `ClockReader`."""
        where = {"project": key.project, "run": key.run, "launch": launch or ""}
        (span,) = (await self._clickhouse.select(SPAN, where)).records()
        if not span["rows"]:
            return ()
        first, last = between or (span["first"], span["last"])
        first, last = max(first, _EARLIEST), min(last, _LATEST)
        window = {"first": first, "last": last, "piece": max(LEAST_PIECE_NS, (last - first) // MOST_PIECES)}
        table = await self._clickhouse.select(READINGS, {**where, **window})
        return [
            ClockReading(
                incarnation=row["incarnation_hex"],
                agent=row["agent"],
                server=row["server"],
                at_ns=row["at_ns"],
                offset_ns=row["offset_ns"],
                error_ns=row["error_ns"],
                drift=row["drift_of"],
                rtt_ns=row["rtt_ns"],
                samples=row["sample_count"],
            )
            for row in table.records()
        ]
