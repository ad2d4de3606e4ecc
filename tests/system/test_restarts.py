"""kill -9 of any tier while data flows: nothing is lost, nothing is stored twice."""

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ground.brokers import Broker
from tests.ground.processes import Child, Children, python, wait_until
from tests.ground.stacks import clean_environ
from tests.ground.stores import Store
from tests.system.tiers import Tiers

ROWS = "SELECT count(), uniqExact(incarnation, seq, idx), uniqExact(step) FROM scalars WHERE run_id = 'restarts'"


@pytest.fixture
def tiers(broker: Broker, clickhouse_front: Store, tmp_path: Path) -> Iterator[Tiers]:
    """Gateway and writer, running."""
    running = Tiers(broker, clickhouse_front, tmp_path)
    running.start("writer")
    running.start("gateway")
    yield running
    running.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [2, pytest.param(12, marks=pytest.mark.chaos)])
def test_rows_emitted_while_every_tier_was_killed_are_stored_once(
    tiers: Tiers, broker: Broker, clickhouse_front: Store, children: Children, *, tmp_path: Path, rounds: int
) -> None:
    order = random.Random(rounds)
    stop_file = tmp_path / "stop"
    environ = clean_environ(
        RANKSCOPE_ENDPOINT=tiers.gateway,
        RANKSCOPE_RUN_ID="restarts",
        RANKSCOPE_RANK="0",
        RANKSCOPE_WORLD_SIZE="1",
        RANKSCOPE_HOME=str(tmp_path / "home"),
    )
    trainer = children.start(python("tests.system.cases", "emitting", stop_file), name="trainer", environ=environ)

    await_rows_from_now_on(clickhouse_front, trainer)
    for _ in range(rounds):
        restarts = [tiers.restart_writer, tiers.restart_gateway, broker.restart]
        for restart in order.sample(restarts, k=len(restarts)):
            restart()
            await_rows_from_now_on(clickhouse_front, trainer)
    stop_file.touch()
    assert trainer.wait(60) == 0, trainer.output()

    said = re.search(r"emitted (\d+) dropped/unsent 0 0", trainer.output())
    assert said, trainer.output()
    emitted = int(said[1])
    wait_until(lambda: stored(clickhouse_front)[0] >= emitted, what="all rows in the store")
    assert stored(clickhouse_front) == (emitted, emitted, emitted)
    ledger = (
        "SELECT count() = uniqExact(incarnation, seq), max(seq) + 1 = count() FROM batches WHERE run_id = 'restarts'"
    )
    assert clickhouse_front.client.query(ledger).result_rows == [(1, 1)]


def await_rows_from_now_on(store: Store, trainer: Child) -> None:
    """Waits until a row that is emitted after this moment is stored: the whole path works again."""
    now = time.time_ns()
    newest = f"SELECT countIf(time > {now}) FROM scalars"
    trainer.await_that(
        lambda: stored(store)[0] > 0 and store.client.query(newest).result_rows[0][0] > 0,
        timeout_s=60,
        what="rows coming in",
    )


def stored(store: Store) -> tuple[int, int, int]:
    """Rows, their distinct keys and their distinct steps; zeros before the tables are there."""
    if not store.client.command("EXISTS TABLE scalars"):
        return 0, 0, 0
    rows, keys, steps = store.client.query(ROWS).result_rows[0]
    return rows, keys, steps
