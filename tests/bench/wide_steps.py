"""A query service over a chDB with wide steps and a huge trace: `python -m tests.bench.wide_steps FOLDER PORT`.

Rows are made inside the store, since what is measured is reading them. Steps 0 to 4 are of 1,024 ranks with 60 paths
each, every rank a process of its own, 8 to a node, with a measured clock. Step 42 is a trace of a million spans: a
root with 30,000 children, 300 of which have the rest; step 43 one chain of a million spans.
"""

import asyncio
import sys

from clickhouse_connect.driver.client import Client

from rankscope_proto.names import SPAN_FLAGS
from tests.bench.filled import serve_filled
from tests.bench.one_trace import BEGIN, INDEX

RUN = "wide"
RANKS, PATHS, STEPS = 1_024, 60, 5
SPANS = 1_000_000
SHAPES = {
    "wide": ("if(n <= 30000, 1, 2 + n % 300)", "multiIf(n = 0, 20000000000, n <= 300, 10000000000, 1000000)"),
    "deep": ("n", f"({SPANS} - n) * 10000 + 1000000"),
}
"""The id of the parent of span n + 1, and how long that one lasts."""

_WEEK = f"toMonday(toDate(intDiv({BEGIN}, 1000000000)))"
_LAUNCH = "unhex(repeat('0a', 16))"
_OF_RANK = "toFixedString(unhex(leftPad(hex(toUInt32(rank)), 32, '0')), 16)"
_COLUMNS = """project, run_id, launch_id, rank, node, incarnation, seq, idx, week, world_size, span_id, trace_hi,
    trace_lo, parent_span_id, name, kind, status, start, duration, step, path, flags, phase"""


def trace_id(shape: str) -> str:
    """The id of the huge trace of a shape, 32 hex digits."""
    return f"{9:016x}{list(SHAPES).index(shape) + 1:016x}"


# Path 0 is the step, 1 to 4 its phases, the rest are layers, spread over the phases.
STEP_SPANS = f"""
INSERT INTO spans ({_COLUMNS})
SELECT 'default', '{RUN}', {_LAUNCH}, rank, concat('node-', toString(intDiv(rank, 8))), {_OF_RANK}, step, place,
    {_WEEK}, {RANKS}, 1 + place + {PATHS} * (rank + {RANKS} * step), 1, step,
    multiIf(place = 0, 0, place <= 4, 1 + {PATHS} * (rank + {RANKS} * step),
            1 + (1 + place % 4) + {PATHS} * (rank + {RANKS} * step)),
    if(place = 0, 'step', if(place <= 4, phases[place], concat('layers.', toString(place)))), 13, 1,
    {BEGIN} + step * 1000000000 + place * 1000000 + intHash32(rank) % 100000,
    multiIf(place = 0, 900000000, place <= 4, 200000000, 500000) + intHash32(rank * 60 + place + step) % 100000, step,
    multiIf(place = 0, 'step', place <= 4, concat('step/', phases[place]),
            concat('step/', phases[1 + place % 4], '/layers.', toString(place))),
    {SPAN_FLAGS["in_step_trace"]}, 0
FROM (
    SELECT toInt32(intDiv(number, {PATHS}) % {RANKS}) AS rank, number % {PATHS} AS place,
        intDiv(number, {PATHS * RANKS}) AS step, ['input', 'forward', 'backward', 'optimizer'] AS phases
    FROM numbers({PATHS * RANKS * STEPS})
)"""


def _huge(number: int, parent: str, lasts: str) -> str:
    return f"""
INSERT INTO spans ({_COLUMNS})
SELECT 'default', '{RUN}', {_LAUNCH}, rank, 'node-0', {_OF_RANK}, 100 + intDiv(n, 2000), n % 2000, {_WEEK}, {RANKS},
    n + 1, 9, {number + 1}, if(n = 0, 0, {parent}), concat('op-', toString(n % 37)), 1 + n % 12, 1,
    {BEGIN} + 60000000000 + n * 10000, {lasts}, {42 + number},
    'rollout/op', 0, 0
FROM (SELECT number AS n, toInt32(number % 4) AS rank FROM numbers({SPANS}))"""


LEDGER = f"""
INSERT INTO batches
    (project, run_id, launch_id, process_role, rank, world_size, incarnation, seq, sealed, received, week, mesh)
SELECT 'default', '{RUN}', {_LAUNCH}, 1, rank, {RANKS}, {_OF_RANK}, seq, {BEGIN}, {BEGIN}, {_WEEK},
    map('dp', toUInt32(intDiv(rank, 8)), 'tp', toUInt32(rank % 8))
FROM (SELECT toInt32(number % {RANKS}) AS rank, intDiv(number, {RANKS}) AS seq FROM numbers({RANKS * STEPS}))"""

CLOCKS = f"""
INSERT INTO clocks (project, run_id, launch_id, rank, incarnation, seq, idx, week, time, of_hi, of_lo, offset, error,
    rtt, samples, server)
SELECT 'default', '{RUN}', {_LAUNCH}, -1, toFixedString(unhex(leftPad(hex(1000000 + intDiv(rank, 8)), 32, '0')), 16),
    0, rank, {_WEEK}, {BEGIN}, 0, toUInt64(rank), intDiv(rank, 8) * 1000000, 300000, 500000, 8, 'gateway'
FROM (SELECT toInt32(number) AS rank FROM numbers({RANKS}))"""


def fill(client: Client) -> None:
    """Fills a migrated store."""
    client.command(STEP_SPANS)
    for number, (parent, lasts) in enumerate(SHAPES.values()):
        client.command(_huge(number, parent, lasts))
    for statement in (INDEX, LEDGER, CLOCKS):
        client.command(statement)


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    asyncio.run(serve_filled(folder, port, fill=fill))
