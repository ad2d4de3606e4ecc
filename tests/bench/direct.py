"""The same bytes inserted straight into `landing`: what the store alone can take.

`python -m tests.bench.direct FOLDER KIND SECONDS` prints `{"rows": n, "seconds": s, "cpu_s": s}`; making the
bytes is not timed. Groups are as large as the writer's.
"""

import json
import os
import sys
import time

import clickhouse_connect

from rankscope_proto.storage import INSERT_SETTINGS, landing_schema, migrations
from tests.bench.generator import RANKS
from tests.bench.load import Trainer, delimited, identity, kind_named

GROUP_BATCHES = 96
"""192,000 rows: the writer stops at 200,000, or at 32 MiB."""


def main(folder: str, kind: str, seconds: str) -> None:
    """Inserts groups for so many seconds of insert time."""
    os.chdir(folder)
    client = clickhouse_connect.get_client(dsn=f"chdb://{folder}/store")
    for migration in migrations():
        for statement in migration.statements:
            client.command(statement)
    trainers = [Trainer(identity("direct", rank, ranks=RANKS), kind_named(kind)) for rank in range(RANKS)]
    settings = {**INSERT_SETTINGS, "format_schema": landing_schema()}
    spent, cpu, rows, number = 0.0, 0.0, 0, 0
    while spent < float(seconds):
        batches = [trainer.next_batch() for _ in range(GROUP_BATCHES // RANKS) for trainer in trainers]
        body = delimited(batches)
        started, cpu_before = time.monotonic(), time.process_time()
        tokened = {**settings, "insert_deduplication_token": str(number)}
        client.raw_insert("landing", insert_block=body, fmt="Protobuf", settings=tokened)
        spent += time.monotonic() - started
        cpu += time.process_time() - cpu_before
        rows += sum(batch.rows for batch in batches)
        number += 1
    client.close()
    sys.stdout.write(json.dumps({"rows": rows, "seconds": spent, "cpu_s": cpu}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
