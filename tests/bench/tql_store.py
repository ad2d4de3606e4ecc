"""A query service over one long run of 1,024 ranks: `python -m tests.bench.tql_store FOLDER PORT ROWS`.

ROWS spans with nine attributes (six texts, two numbers, a metric) and as many level-1 statistics, made inside the
store, since what is measured is reading them. They come as a writer sends them: a step's rows of all ranks together, in
blocks of 200,000. Values are hashes, so they compress worse than those of a real run.

When background merges rest, the sizes are written to FOLDER/stored.json; then the service listens until SIGTERM.
"""

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path

from clickhouse_connect.driver.client import Client

from tests.bench.filled import serve_filled
from tests.bench.one_trace import BEGIN, INDEX

RUN = "wide"
RANKS = 1_024
SPANS_OF_STEP = 20
"""Of one rank; the first is the step, and the parent of the others."""

TENSORS = 10
ROWS_OF_INSERT = 1_000_000
BLOCK_ROWS = 200_000
"""At which a writer closes its group."""

NAMES = [
    *("step", "forward", "backward", "optimizer", "all_reduce", "env.step", "load", "all_gather", "checkpoint", "log"),
    *(f"layers.{number}" for number in range(10)),
]

_STEP_NS = 300_000_000
_WEEK = f"toMonday(toDate(intDiv({BEGIN}, 1000000000)))"
_ROW = """'default' AS project, '{run}' AS run_id, unhex(repeat('0a', 16)) AS launch_id, 1 AS process_role, rank,
    rank % 8 AS local_rank, {ranks} AS world_size, -1 AS worker_index,
    concat('host-', toString(intDiv(rank, 8))) AS node,
    reinterpret(toUInt128(rank + 1), 'FixedString(16)') AS incarnation,
    intDiv(step * {of_step} + part, 2000) AS seq, (step * {of_step} + part) % 2000 AS idx, {week} AS week"""
_SOURCE = """(
    SELECT number AS n, number % {of_step} AS part, toInt32(intDiv(number, {of_step}) % {ranks}) AS rank,
        toInt64(intDiv(number, {of_step} * {ranks})) AS step
    FROM numbers({{first:UInt64}}, {{count:UInt64}}))"""
_AS_GROUPS = f"""
SETTINGS max_threads = 1, max_block_size = {BLOCK_ROWS}, max_insert_block_size = {BLOCK_ROWS},
    min_insert_block_size_rows = 0, min_insert_block_size_bytes = 0, insert_deduplicate = 0"""


def _row(of_step: int) -> str:
    return _ROW.format(run=RUN, ranks=RANKS, of_step=of_step, week=_WEEK)


SPANS = f"""
INSERT INTO spans (
    project, run_id, launch_id, process_role, rank, local_rank, world_size, worker_index, node, incarnation, seq, idx,
    week, span_id, trace_hi, trace_lo, parent_span_id, name, kind, status, start, duration, step, phase, depth, path,
    flags, attributes, numbers, metrics
)
SELECT {_row(SPANS_OF_STEP)},
    toUInt64(rank + 1) * 1000000000000 + step * {SPANS_OF_STEP} + part AS span_id,
    cityHash64(step, 'hi'), cityHash64(step, 'lo'), if(part = 0, 0, span_id - part), {NAMES}[part + 1] AS name,
    13, if(cityHash64(n) % 1000 = 0, 2, 1),
    {BEGIN} + step * {_STEP_NS} + part * 14000000 + cityHash64(n, 3) % 2000000, 1000000 + cityHash64(n, 4) % 13000000,
    step, part % 5, part > 0, if(part = 0, 'step', concat('step/', name)), 8,
    map('device', concat('cuda:', toString(rank % 8)), 'op', ['sum', 'avg', 'max'][n % 3 + 1],
        'group', ['dp', 'tp', 'pp'][n % 3 + 1], 'dtype', 'bf16', 'site', concat('s', toString(cityHash64(n) % 1000)),
        'tag', concat('u', toString(cityHash64(n, 9) % 100000))),
    map('bytes', cityHash64(n, 5) % 1000000, 'seq', step), map('loss', cityHash64(n, 6) % 1000000 / 1e6)
FROM {_SOURCE.format(of_step=SPANS_OF_STEP, ranks=RANKS)}{_AS_GROUPS}"""

TENSOR_STATS = f"""
INSERT INTO tensor_stats (
    project, run_id, launch_id, process_role, rank, local_rank, world_size, worker_index, node, incarnation, seq, idx,
    week, name, module, layer_index, layer_type, role, dtype, shape, numel_local, numel_global, step, phase, time,
    flags, nonfinite_count, nan_count, inf_count, absmax, l2
)
SELECT {_row(TENSORS)},
    concat('layers.', toString(part), '.weight'), concat('layers.', toString(part)), part,
    if(part % 2 = 0, 'attention', 'mlp'), 2, 'float32', [768, 768], 589824, 589824, step, 3,
    {BEGIN} + step * {_STEP_NS} + cityHash64(n) % 1000000, 8, if(cityHash64(n) % 100000 = 0, 3, 0), 0, 0,
    1 + cityHash64(n, 1) % 1000000 / 1e6, 10 + cityHash64(n, 2) % 1000000000 / 1e9
FROM {_SOURCE.format(of_step=TENSORS, ranks=RANKS)}{_AS_GROUPS}"""

LEDGER = f"""
INSERT INTO batches
    (project, run_id, launch_id, process_role, rank, world_size, incarnation, seq, sealed, received, week)
SELECT DISTINCT project, run_id, launch_id, process_role, rank, world_size, incarnation, seq, {BEGIN}, {BEGIN}, week
FROM spans"""

STORED = """
SELECT table, sum(bytes_on_disk) / sum(rows), sum(secondary_indices_compressed_bytes) / sum(rows), count()
FROM system.parts
WHERE active AND database = currentDatabase() AND table IN ('spans', 'tensor_stats')
GROUP BY table"""

MERGING = "SELECT count() FROM system.merges"


def fill(client: Client, rows: int) -> dict[str, dict[str, list[float]]]:
    """Fills a migrated store, and waits until its merges rest.

    Returns:
        Bytes a row, of those the index's, and parts of each table: `inserted` at once, `merged` when merges rest.
    """
    for first in range(0, rows, ROWS_OF_INSERT):
        for statement in (SPANS, TENSOR_STATS):
            client.command(statement, parameters={"first": first, "count": min(ROWS_OF_INSERT, rows - first)})
    inserted = _stored(client)
    client.command(INDEX)
    client.command(LEDGER)
    while client.query(MERGING).result_rows[0][0]:
        time.sleep(0.2)
    return {"inserted": inserted, "merged": _stored(client)}


def note(client: Client, rows: int) -> None:
    """Fills the store, and leaves the sizes in stored.json."""
    Path("stored.json").write_text(json.dumps(fill(client, rows)), encoding="utf-8")


def _stored(client: Client) -> dict[str, list[float]]:
    return {table: list(sizes) for table, *sizes in client.query(STORED).result_rows}


if __name__ == "__main__":
    folder, port, rows = sys.argv[1:]
    asyncio.run(serve_filled(folder, port, fill=partial(note, rows=int(rows))))
