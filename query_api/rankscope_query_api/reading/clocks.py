"""What was measured of the clocks of a run's processes, from `clocks`."""

# ruff: noqa: S608 - only constants of this repository are put together here: values are bound, and
# `tests/query_api/test_statements.py` parses every statement

from collections.abc import Sequence

from rankscope_proto.names import COLLECTIVE_FLAGS, ProcessRole
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.clock_reading import ClockHolder, ClockReading, Passage
from rankscope_query_api.values import RunKey

MOST_PIECES = 100
"""Of a window: of each the surest reading is taken, so that a run of days is no more to read than one of an hour."""

LEAST_PIECE_NS = 10 * 10**9
"""Agents measure about as often."""

_EARLIEST, _LATEST = -(2**62), 2**62

# Of what lies outside the window the nearest reading is taken on each side: a clock goes on between readings. The
# window is cut for each clock by itself, since clocks may be days apart.
READINGS = f"""
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
        time < {{first:Int64}} AS is_before,
        time > {{last:Int64}} AS is_behind,
        if(is_before OR is_behind, 0, intDiv(time - earliest, greatest({LEAST_PIECE_NS}, piece_ns))) AS piece,
        argMin(
            (lower(hex(incarnation)), time, offset, error, drift, rtt, samples),
            (multiIf(is_before, -time, is_behind, time, error), seq)
        ) AS found
    FROM clocks
    LEFT JOIN (
        SELECT
            of_hi, of_lo, server, min(time) AS earliest, intDiv(max(time) - min(time), {MOST_PIECES}) AS piece_ns
        FROM clocks
        WHERE project = {{project:String}} AND run_id = {{run:String}}
            AND time >= {{first:Int64}} AND time <= {{last:Int64}}
        GROUP BY of_hi, of_lo, server
    ) AS reach USING (of_hi, of_lo, server)
    WHERE project = {{project:String}} AND run_id = {{run:String}}
        AND ({{launch:String}} = '' OR lower(hex(launch_id)) = {{launch:String}})
    GROUP BY of_hi, of_lo, server, is_before, is_behind, piece
)
ORDER BY incarnation_hex, server, at_ns"""

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

WAITED_FOR_BY_ALL = (
    *("all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_coalesced", "all_gather_into_tensor"),
    *("all_gather_single", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "barrier"),
)
"""What each rank gets in these depends on what every other one gives, so none leaves before the last has come. The root
of a broadcast may leave before anybody else has come."""

A_WINDOW, MOST_MEETINGS = 16, 320
"""Collectives of each ten seconds, and of all of them: the quickest ones bound best."""

_NOT_TRUE = COLLECTIVE_FLAGS["enqueued"] | COLLECTIVE_FLAGS["p2p"] | COLLECTIVE_FLAGS["interrupted"]

MEETINGS = f"""
SELECT passages
FROM (
    SELECT
        group,
        cseq,
        min(entry) AS first,
        max(ifNull(exit, entry) - entry) AS longest,
        groupArray((lower(hex(incarnation)), entry, ifNull(exit, entry))) AS passages
    FROM collectives
    WHERE project = {{project:String}} AND run_id = {{run:String}} AND lower(hex(launch_id)) = {{launch:String}}
        AND toInt64(ifNull(step, -1)) BETWEEN {{first:Int64}} AND {{last:Int64}}
        AND exit IS NOT NULL AND cseq > 0
        AND lower(hex(incarnation)) IN {{incarnations:Array(String)}}
        AND op IN {WAITED_FOR_BY_ALL} AND exit_source IN ('call', 'future') AND bitAnd(flags, {_NOT_TRUE}) = 0
    GROUP BY group, group_ranks, cseq
    HAVING uniqExact(incarnation) > 1
    ORDER BY intDiv(first, {LEAST_PIECE_NS}), longest, first, group, cseq
    LIMIT {A_WINDOW} BY intDiv(first, {LEAST_PIECE_NS})
)
ORDER BY longest, first, group, cseq
LIMIT {MOST_MEETINGS}"""

STATEMENTS = (READINGS, HOLDERS, MEETINGS)
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
        first, last = between or (_EARLIEST, _LATEST)
        window = {"first": max(first, _EARLIEST), "last": min(last, _LATEST)}
        where = {"project": key.project, "run": key.run, "launch": launch or ""}
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

    async def meetings(
        self, key: RunKey, launch: str, *, steps: tuple[int, int], incarnations: Sequence[str]
    ) -> Sequence[Sequence[Passage]]:
        """See `ClockReader`."""
        where = {"project": key.project, "run": key.run, "launch": launch}
        asked = {**where, "first": steps[0], "last": steps[1], "incarnations": list(incarnations)}
        table = await self._clickhouse.select(MEETINGS, asked)
        return [[Passage(*passage) for passage in row["passages"]] for row in table.records()]
