"""A query service over a chDB with one run of 64 ranks and 200 steps: `python -m tests.bench.rules_run FOLDER PORT`.

Rows are made inside the store, since what is measured is judging them: 24 tensors a step and rank (gradients and
outputs of 12 layers), five spans, four collectives, a loss, and where each process stands. The run is clean.
"""

import asyncio
import sys

from clickhouse_connect.driver.client import Client

from rankscope_proto.names import SPAN_FLAGS, TENSOR_FLAGS, Phase, Role
from tests.bench.filled import serve_filled

RUN = "judged"
RANKS, STEPS, TENSORS, COLLECTIVES = 64, 200, 24, 4
BEGIN = 1_795_971_713_000_000_000

_WEEK = f"toMonday(toDate(intDiv({BEGIN}, 1000000000)))"
_LAUNCH = "unhex(repeat('0a', 16))"
_OF_RANK = "toFixedString(unhex(leftPad(hex(toUInt32(rank)), 32, '0')), 16)"
_KEYS = "project, run_id, launch_id, process_role, rank, node, incarnation, seq, idx, week, world_size"
_VALUES = (
    f"'default', '{RUN}', {_LAUNCH}, 1, rank, concat('node-', toString(intDiv(rank, 8))), {_OF_RANK}, step, place,"
    f" {_WEEK}, {RANKS}"
)
_AT = f"{BEGIN} + step * 300000000"
_PHASES = "['input', 'forward', 'backward', 'optimizer']"


def _rows(places: int) -> str:
    return f"""
FROM (
    SELECT toInt32(intDiv(number, {places}) % {RANKS}) AS rank, toUInt32(number % {places}) AS place,
        toInt64(intDiv(number, {places * RANKS})) AS step
    FROM numbers({places * RANKS * STEPS})
)"""


STATEMENTS = (
    f"""
INSERT INTO batches ({_KEYS.replace(", idx", "")}, sealed, received, rows_tensor_stats, rows_spans, emitted_spans)
SELECT {_VALUES.replace(", place,", ",")}, {_AT}, {_AT}, {TENSORS}, 5, 5 * (step + 1) {_rows(1)}""",
    f"""
INSERT INTO tensor_stats ({_KEYS}, name, module, layer_index, role, phase, flags, step, time, l2, nonfinite_count)
SELECT {_VALUES}, concat('layers.', toString(intDiv(place, 2)), '.weight'),
    concat('layers.', toString(intDiv(place, 2))), toInt32(intDiv(place, 2)),
    if(place % 2 = 0, {Role.GRAD.code}, {Role.ACTIVATION.code}),
    if(place % 2 = 0, {Phase.BACKWARD.code}, {Phase.FORWARD.code}),
    if(place % 2 = 0, {TENSOR_FLAGS["local"]}, 0), step, {_AT} + place * 1000,
    0.8 + (intHash32(rank * 7919 + step * 31 + place) % 1000) / 2500, 0 {_rows(TENSORS)}""",
    f"""
INSERT INTO spans ({_KEYS}, span_id, parent_span_id, trace_hi, trace_lo, name, kind, status, start, duration, step,
    path, flags, phase)
SELECT {_VALUES}, 1 + place + 5 * (rank + {RANKS} * step), if(place = 0, 0, 1 + 5 * (rank + {RANKS} * step)), 1, step,
    if(place = 0, 'step', {_PHASES}[place]), 13, 1, {_AT} + if(place = 0, 0, place - 1) * 60000000,
    if(place = 0, 240000000, 60000000) + intHash32(rank * 60 + place + step) % 4000000, step,
    if(place = 0, 'step', concat('step/', {_PHASES}[place])), {SPAN_FLAGS["in_step_trace"]}, place {_rows(5)}""",
    f"""
INSERT INTO collectives ({_KEYS}, entry, exit, `group`, group_ranks, cseq, op, entry_source, exit_source, bytes, shape,
    step)
SELECT {_VALUES}, {_AT} + 130000000 + place * 12000000 + intHash32(rank + step * 131 + place) % 2000000,
    {_AT} + 134000000 + place * 12000000, '0', '0-63', step * {COLLECTIVES} + place + 1, 'all_reduce', 'call', 'call',
    4096, '1024', step {_rows(COLLECTIVES)}""",
    f"""
INSERT INTO scalars ({_KEYS}, name, value, step, time)
SELECT {_VALUES}, 'loss', 4 * exp(-step / 100) + (intHash32(step) % 100) / 10000, step, {_AT} {_rows(1)}""",
    f"""
INSERT INTO clocks ({_KEYS}, time, of_hi, of_lo, offset, error, rtt, samples, server)
SELECT {_VALUES}, {_AT}, 0, toUInt64(rank), 0, 100000, 200000, 8, 'gateway' {_rows(1)} WHERE step % 20 = 0""",
    f"""
INSERT INTO standings ({_KEYS}, time, of_hi, of_lo, state, `group`, enqueued, completed, op, shape, since, step, phase)
SELECT {_VALUES}, toUnixTimestamp64Nano(now64(9)) - (200 - step) * 1000000000, 0, toUInt64(rank), 'running', '0',
    step * 4, step * 4, 'all_reduce', '1024', toUnixTimestamp64Nano(now64(9)) - (200 - step) * 1000000000, step, 2
{_rows(1)}""",
)


def fill(client: Client) -> None:
    """Fills a migrated store."""
    for statement in STATEMENTS:
        client.command(statement)


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    asyncio.run(serve_filled(folder, port, fill=fill))
