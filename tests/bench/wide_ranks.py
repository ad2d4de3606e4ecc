"""A query service over the collectives of 1,024 ranks: `python -m tests.bench.wide_ranks FOLDER PORT`.

100 steps of four all-reduces, the phases of every step and a clock for every process, made inside the store, since
what is measured is reading them. In every fifth step rank 77 has its input late by 30 ms.
"""

import asyncio
import sys

from clickhouse_connect.driver.client import Client

from tests.bench.filled import serve_filled
from tests.query_api.batches import START

RUN = "wide"
RANKS, STEPS, COLLECTIVES = 1_024, 100, 4
LATE_RANK, EVERY = 77, 5

_STEP_NS, _MS = 300_000_000, 1_000_000
_WEEK = f"toMonday(toDate(intDiv({START}, 1000000000)))"
_LAUNCH = "unhex(repeat('0a', 16))"
_PROCESS = "reinterpret(toUInt128(rank + 1) * 1000003, 'FixedString(16)')"
_ROW = f"""'default' AS project, '{RUN}' AS run_id, {_LAUNCH} AS launch_id, 1 AS process_role, rank,
    rank % 8 AS local_rank, {RANKS} AS world_size, -1 AS worker_index,
    concat('host-', toString(intDiv(rank, 8))) AS node,
    {_PROCESS} AS incarnation"""
_NAMES = "project, run_id, launch_id, process_role, rank, local_rank, world_size, worker_index, node, incarnation"


def _source(parts: int) -> str:
    return f"""(
    SELECT number AS n, toInt32(number % {RANKS}) AS rank, intDiv(number, {RANKS}) % {parts} AS part,
        toInt64(intDiv(number, {RANKS * parts})) AS step
    FROM numbers({RANKS * parts * STEPS}))"""


def _half(first: int) -> str:
    return f"reinterpretAsUInt64(reverse(substring({_PROCESS}, {first}, 8)))"


_LATE = f"if(rank = {LATE_RANK} AND step % {EVERY} = 0, {30 * _MS}, 0)"

STATEMENTS = (
    f"""
INSERT INTO collectives ({_NAMES}, seq, idx, week, entry, exit, `group`, group_ranks, cseq, op, entry_source,
    exit_source, bytes, dtype, shape, reduction, step, phase, flags)
SELECT {_ROW}, step, part, {_WEEK},
    {START} + step * {_STEP_NS} + (part + 1) * {50 * _MS} + cityHash64(n, 1) % {5 * _MS} + if(part = 0, {_LATE}, 0),
    {START} + step * {_STEP_NS} + (part + 1) * {50 * _MS} + {37 * _MS}, '0', '0-{RANKS - 1}',
    step * {COLLECTIVES} + part + 1, 'all_reduce', 'call', 'call', 4096, 'float32', '1024', 'sum', step, 3, 0
FROM {_source(COLLECTIVES)}""",
    f"""
INSERT INTO spans ({_NAMES}, seq, idx, week, span_id, trace_hi, trace_lo, name, kind, status, start, duration, step,
    phase, depth, path, flags)
SELECT {_ROW}, step, part, {_WEEK}, n + 1, 1, step + 1, ['input', 'forward', 'backward', 'optimizer'][part + 1] AS name,
    13, 1, {START} + step * {_STEP_NS} + [0, 10, 40, 240][part + 1] * {_MS} + if(part > 0, {_LATE}, 0),
    [10, 30, 200, 20][part + 1] * {_MS} + if(part = 0, {_LATE}, 0), step, part + 1, 1, concat('step/', name), 8
FROM {_source(4)}""",
    f"""
INSERT INTO batches ({_NAMES}, seq, sealed, received, rows_collectives, week)
SELECT {_ROW}, step, {START} + step * {_STEP_NS}, {START} + step * {_STEP_NS}, {COLLECTIVES}, {_WEEK}
FROM {_source(1)}""",
    f"""
INSERT INTO clocks (project, run_id, launch_id, process_role, rank, local_rank, world_size, worker_index, node,
    incarnation, seq, idx, week, time, of_hi, of_lo, offset, error, drift, rtt, samples, server)
SELECT 'default', '{RUN}', {_LAUNCH}, 3, -1, -1, {RANKS}, -1, concat('host-', toString(intDiv(rank, 8))),
    reinterpret(toUInt128(intDiv(rank, 8) + 1), 'FixedString(16)'), at, rank, {_WEEK}, {START} + at * 10000000000,
    {_half(1)}, {_half(9)}, 0, 200000, 0, 400000, 24, 'gateway'
FROM (SELECT toInt32(number % {RANKS}) AS rank, toUInt64(intDiv(number, {RANKS})) AS at FROM numbers({RANKS * 4}))""",
)


def fill(client: Client) -> None:
    """Fills a migrated store."""
    for statement in STATEMENTS:
        client.command(statement)
    for table in ("collectives", "spans", "batches", "clocks"):
        client.command(f"OPTIMIZE TABLE {table} FINAL")


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    asyncio.run(serve_filled(folder, port, fill=fill))
