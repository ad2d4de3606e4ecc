"""Batches that the store cannot parse, among good ones: they are set aside within seconds, and nothing else is."""

import json
import os
import time
from collections.abc import Callable

import pytest

from rankscope_proto.identity import payload_digest, uuid7, week_of
from rankscope_proto.v1.batch_pb2 import Batch
from tests.ground.processes import Child, python, wait_until
from tests.system.site import STREAM
from tests.system.tables import tables_of
from tests.system.trial import Trial

QUARANTINED_S = 10.0
LETTERS = "rankscope:dlq"
ROWS = 3


def batch_of(run: str, *, seq: int = 0) -> Batch:
    """A good batch of three scalars, of an incarnation of its own."""
    now = time.time_ns()
    made = Batch(strings=["", "poison"])
    header = made.header
    header.schema_version, header.project, header.run_id, header.launch_id = 2, "default", run, bytes(16)
    header.incarnation, header.seq = uuid7(now, os.urandom(10)), seq
    header.process_role, header.world_size, header.worker_index, header.parent_rank = 1, 1, -1, -1
    header.sealed, header.week, header.emitted_scalars = now, week_of(now, now_ns=now), ROWS
    made.scalars.name.extend([1] * ROWS)
    made.scalars.value.extend([1.0] * ROWS)
    made.scalars.time.extend([now] * ROWS)
    return made


def with_a_long_launch(made: Batch) -> bytes:
    """What a gateway of another version might let through: it parses, and no row of it can be stored."""
    made.header.launch_id = bytes(40)
    return made.SerializeToString()


def cut_short(made: Batch) -> bytes:
    """The payload without its end: nobody can parse it."""
    return made.SerializeToString()[:-3]


Spoil = Callable[[Batch], bytes]
KINDS: list[Spoil] = [with_a_long_launch, cut_short]


def slip_in(trial: Trial, made: Batch, payload: bytes) -> None:
    """Puts a payload into every shard's stream past the gateway, so that each group has one among its batches."""
    header = made.header
    fields: dict[bytes | str, bytes | str | int] = {
        "payload": payload,
        "incarnation": header.incarnation,
        "seq": header.seq,
        "digest": payload_digest(payload),
        "rows": ROWS,
        "week": header.week,
        "expanded": 0,
        "again": 0,
    }
    with trial.site.broker.client() as client:
        client.xadd(STREAM.format(shard=int.from_bytes(header.incarnation) % 16), fields)  # pyright: ignore[reportArgumentType] - its type is invariant


def letters(trial: Trial) -> int:
    """Letters in the dead-letter stream."""
    with trial.site.broker.client() as client:
        return int(str(client.xlen(LETTERS)))


@pytest.mark.parametrize("spoil", KINDS, ids=lambda spoil: spoil.__name__)
def test_a_poison_batch_is_quarantined_and_its_neighbours_are_stored_in_time(trial: Trial, spoil: Spoil) -> None:
    before = letters(trial)
    trial.add_source()
    trial.await_stored(20)

    for _ in range(3):
        made = batch_of(f"{trial.run}-poison")
        slip_in(trial, made, spoil(made))
    wait_until(lambda: letters(trial) == before + 3, timeout_s=QUARANTINED_S, what="three letters")

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report
    assert len(dead_letters(trial, "ls")) >= 3


def test_a_poison_batch_that_parses_is_declared_lost_exactly(trial: Trial) -> None:
    trial.add_source()
    trial.await_stored(5)
    made = batch_of(trial.run)

    slip_in(trial, made, with_a_long_launch(made))

    incarnation = made.header.incarnation.hex()
    wait_until(lambda: rows_declared(trial, incarnation) == ROWS, what="a gap of the writer's")
    report = trial.settle(may_declare={"quarantined"})
    assert report.is_clean, report
    assert report.declared == {"quarantined": ROWS}


def rows_declared(trial: Trial, incarnation: str) -> int:
    gaps = tables_of(trial.site.store.client, trial.run).gaps
    return sum(gap.rows for gap in gaps if gap.incarnation == incarnation and gap.cause == "quarantined")


def dead_letters(trial: Trial, *command: str) -> list[object]:
    """The answer of `rankscope dlq ... --json`."""
    child = Child(
        python("rankscope", "dlq", *command, "--json"),
        name=f"dlq-{time.time_ns()}",
        folder=trial.folder,
        environ=trial.site.environ,
    )
    assert child.wait(30) == 0, child.output()
    return list(json.loads(child.output())["items"])
