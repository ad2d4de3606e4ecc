"""A query service over a chDB with a million traces: `python -m tests.bench.many_traces FOLDER PORT`.

Rows are made inside the store, in as many inserts as there are parts, since what is measured is reading them. A trace
is a rollout of four spans; one of 50 fails, nine of ten are of a step, eight ranks take turns.
"""

import asyncio
import sys
import time
from functools import partial

from clickhouse_connect.driver.client import Client

from tests.bench.filled import serve_filled

RUN = "big"
TRACES = 1_000_000
PARTS = 12
S = 10**9
GAP_NS = 5 * 10**8
"""Between the starts of two traces: a million of them took six days."""

_WEEK = "toMonday(toDate(intDiv(start, 1000000000)))"
_SOURCE = f"""
    SELECT
        number AS n,
        cityHash64(number, 1) AS hi,
        cityHash64(number, 2) AS lo,
        {{begin:Int64}} + toInt64(number) * {GAP_NS} AS start,
        if(number % 10 = 0, NULL, toInt64(intDiv(number, 8))) AS step,
        toInt32(number % 8) AS rank
    FROM numbers({{first:UInt64}}, {{count:UInt64}})"""
_PROCESS = "unhex(concat(repeat('0b', 15), leftPad(hex(toUInt8(rank)), 2, '0')))"

SPANS = f"""
INSERT INTO spans (
    project, run_id, launch_id, rank, incarnation, seq, idx, week, span_id, trace_hi, trace_lo, parent_span_id, name,
    kind, status, start, duration, step, path, depth, thread_id, rollout_id, error_type, attributes, numbers, metrics
)
SELECT
    'default', '{RUN}', unhex(repeat('0a', 16)), rank, {_PROCESS}, intDiv(n, 500), (n % 500) * 4 + k, {_WEEK},
    n * 4 + k + 1, hi, lo, if(k = 0, 0, n * 4 + 1),
    [concat('rollout.step', toString(n % 997)), 'search', 'generate', 'score'][k + 1], [1, 4, 3, 6][k + 1],
    if(k = 1 AND n % 50 = 0, 2, 1), start + k * 1000000, if(k = 0, 400000000 + n % 1000 * 1000000, 50000000), step,
    if(k = 0, 'rollout', 'rollout/part'), k > 0, if(k = 0, concat('thread-', toString(n % 5000)), ''),
    if(k = 0, concat('rollout-', toString(n)), ''), if(k = 1 AND n % 50 = 0, 'TimeoutError', ''),
    if(k = 2, map('model', concat('model-', toString(n % 20)), 'session', lower(hex(cityHash64(n, 5)))), map()),
    if(k = 2, map('temperature', 0.7), map()),
    if(k = 2, map('gen_ai.usage.input_tokens', n % 900, 'gen_ai.usage.output_tokens', 20), map())
FROM ({_SOURCE}) ARRAY JOIN [0, 1, 2, 3] AS k"""

INDEX = f"""
INSERT INTO trace_index
SELECT
    'default', '{RUN}', hi, lo, if(isNull(step), [], [assumeNotNull(step)]), [rank], start,
    start + 400000000 + n % 1000 * 1000000, {_WEEK}
FROM ({_SOURCE})"""

LEDGER = f"""
INSERT INTO batches (
    project, run_id, launch_id, process_role, rank, world_size, incarnation, seq, sealed, received, week
)
SELECT 'default', '{RUN}', unhex(repeat('0a', 16)), 1, rank, 8, {_PROCESS}, intDiv(n, 500), start, start, {_WEEK}
FROM ({_SOURCE}) WHERE n % 500 < 8"""


def fill(client: Client, *, begin_ns: int, traces: int = TRACES) -> None:
    """Fills a migrated store.

    Args:
        client: It may write.
        begin_ns: When the first trace starts.
        traces: How many there shall be.
    """
    count = -(-traces // PARTS)
    for first in range(0, traces, count):
        values = {"begin": begin_ns, "first": first, "count": min(count, traces - first)}
        for statement in (SPANS, INDEX, LEDGER):
            client.command(statement, parameters=values)


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    begin_ns = time.time_ns() - TRACES * GAP_NS - 60 * S
    asyncio.run(serve_filled(folder, port, fill=partial(fill, begin_ns=begin_ns)))
