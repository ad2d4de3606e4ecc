"""Trainers killed at random moments, sealing as fast as they can: no span twice, none that was open long missing."""

import random
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope.testing import rows_of
from rankscope_proto.names import SpanStatus
from rankscope_proto.v1.batch_pb2 import Batch
from tests.agent.agent.dying import dying
from tests.agent.agent.test_drain import call
from tests.agent.gateways import ScriptedGateway

DEATHS = 4

TRAINING = """
import os, random, sys, threading
import rankscope
run = rankscope.init("chars", run_id="r", quiet=True)
spare = random.Random(int(os.environ["SEED"]))
forever = [run.start_span(f"forever {number}") for number in range(3)]
open_spans = []

def train():
    number = 0
    while True:
        with run.step(number):
            for index in range(spare.randrange(200)):
                with run.span("short", attributes={"index": index}):
                    pass
        if spare.random() < 0.3:
            open_spans.append(run.start_span(f"a while {number}").start())
        if open_spans and spare.random() < 0.3:
            span = open_spans.pop(spare.randrange(len(open_spans)))
            span.__exit__(None, None, None)
        number += 1

print("open", flush=True)
threading.Thread(target=train, daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


@pytest.mark.timeout(180)
def test_no_span_is_stored_twice_and_those_open_for_long_are_all_there(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    seed = secrets.randbelow(10**6)
    chance = random.Random(seed)
    for death in range(DEATHS):
        home = tmp_path / f"home{death}"
        gateway.accepted.clear()
        with dying(home, TRAINING, SEED=str(seed + death), RANKSCOPE_SPOOL_BYTES="8MiB") as trainer:
            trainer.await_left({f"forever {number}" for number in range(3)})
            trainer.await_batches(chance.randrange(1, 25))

        done = call(tmp_path, "drain", home / "spool", "--endpoint", gateway.endpoint)

        assert done.returncode == 0, done.stderr
        rows: list[dict[str, Any]] = [
            row for one in gateway.accepted for row in rows_of(Batch.FromString(one.payload), "spans")
        ]
        times = Counter((row["trace_hi"], row["trace_lo"], row["span_id"]) for row in rows)
        assert max(times.values()) == 1, f"seed {seed}, death {death}"
        told = Counter(row["name"] for row in rows if row["status"] == SpanStatus.INTERRUPTED.code)
        assert {f"forever {number}" for number in range(3)} <= told.keys(), f"seed {seed}, death {death}"
