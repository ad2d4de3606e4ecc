"""A query service over a chDB with traces of 100,000 spans: `python -m tests.bench.one_trace FOLDER PORT`.

Rows are made inside the store, since what is measured is reading them: one trace for each shape, each of a step of its
own, among a million spans of other traces of the run. `wide` has a root with 30,000 children, 300 of which have the
rest; `deep` is one chain; `skewed` is `wide` with clocks that differ by up to 150 ms and a cycle.
"""

import asyncio
import sys

from clickhouse_connect.driver.client import Client

from tests.bench.filled import serve_filled

RUN = "large"
SPANS = 100_000
BEGIN = 1_795_971_713_000_000_000
SHAPES = {
    "wide": ("if(n <= 30000, 1, 2 + n % 300)", "0"),
    "deep": ("n", "0"),
    "skewed": ("multiIf(n = 300, 9001, n = 9000, 301, n <= 30000, 1, 2 + n % 300)", "rank * 50000000"),
}
"""The id of the parent of span n + 1, and by how much its clock is behind."""

_WEEK = f"toMonday(toDate(intDiv({BEGIN}, 1000000000)))"
_COLUMNS = """project, run_id, launch_id, rank, incarnation, seq, idx, week, span_id, trace_hi, trace_lo,
    parent_span_id, name, kind, status, start, duration, step, thread_id, path, attributes, numbers, metrics"""


def trace_id(shape: str) -> str:
    """The id of the trace of a shape, 32 hex digits."""
    return f"{7:016x}{list(SHAPES).index(shape) + 1:016x}"


def _spans(of_trace: str, parent: str, *, step: str, behind: str, count: int) -> str:
    return f"""
INSERT INTO spans ({_COLUMNS})
SELECT 'default', '{RUN}', unhex(repeat('0a', 16)), rank, unhex(repeat('0b', 16)), intDiv(n, 2000), n % 2000, {_WEEK},
    {of_trace}, if(n = 0, 0, {parent}), concat('op-', toString(n % 37)), 1 + n % 14, if(n % 997 = 3, 2, 1),
    {BEGIN} + n * 10000 - {behind}, 1000000 + n % 1000, {step}, 'thread', 'rollout/op',
    map('env', 'CartPole-v1', 'number', toString(n)), map('gen_ai.usage.input_tokens', 12.0), map('reward', n / 7)
FROM (SELECT number AS n, toInt32(number % 4) AS rank FROM numbers({count}))"""


INDEX = """
INSERT INTO trace_index
SELECT project, run_id, trace_hi, trace_lo, groupUniqArrayIf(assumeNotNull(step), step IS NOT NULL),
    groupUniqArray(rank), min(start), max(start + duration), week
FROM spans
GROUP BY project, run_id, trace_hi, trace_lo, week"""

LEDGER = f"""
INSERT INTO batches
    (project, run_id, launch_id, process_role, rank, world_size, incarnation, seq, sealed, received, week)
SELECT 'default', '{RUN}', unhex(repeat('0a', 16)), 1, 0, 4, unhex(repeat('0b', 16)), number, {BEGIN}, {BEGIN}, {_WEEK}
FROM numbers(700)"""


def fill(client: Client) -> None:
    """Fills a migrated store."""
    for number, (parent, behind) in enumerate(SHAPES.values()):
        client.command(_spans(f"n + 1, 7, {number + 1}", parent, step=str(42 + number), behind=behind, count=SPANS))
    # A million spans in traces of 20, without a step and of the same time: what a page must not read twice.
    others = _spans(
        "n + 1, 1 + intDiv(n, 20), intHash64(intDiv(n, 20))", "n - n % 20 + 1", step="NULL", behind="0", count=10**6
    )
    client.command(others)
    client.command(INDEX)
    client.command(LEDGER)


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    asyncio.run(serve_filled(folder, port, fill=fill))
