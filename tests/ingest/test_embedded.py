"""The whole embedded path with chDB in a process of its own, and what a second owner of its folder hears."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope_ingest.broker_keys import begun_key, lease_key
from rankscope_ingest.buffer import Buffer, Offer
from rankscope_proto.identity import SHARDS, shard_of
from tests.ground.brokers import Broker
from tests.ground.processes import ROOT, Child
from tests.ingest.batches import Sender
from tests.ingest.looking import is_drained
from tests.ingest.waiting import eventually

WRITER = [sys.executable, "-m", "rankscope", "writer"]
COUNT = """
import clickhouse_connect, json, sys
client = clickhouse_connect.get_client(dsn="chdb://" + sys.argv[1])
print(json.dumps(client.query("SELECT count(), uniqExact(incarnation, seq, idx) FROM spans").first_row))
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the chDB of a test lies."""
    return tmp_path / "store"


@pytest.fixture
def writer(broker: Broker, store: Path, tmp_path: Path) -> Iterator[Child]:
    """The writer's command over chDB."""
    environ = {
        **os.environ,
        "RANKSCOPE_REDIS_URL": broker.url,
        "RANKSCOPE_CLICKHOUSE_URL": f"chdb://{store}",
        "RANKSCOPE_MIGRATE": "1",
        "RANKSCOPE_LOG_FORMAT": "json",
    }
    child = Child(WRITER, name="writer", folder=tmp_path, environ=environ)
    with broker.client() as client:
        child.await_that(lambda: bool(client.exists(lease_key(SHARDS - 1))), what="hold the shards")
    yield child
    child.stop()


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True, timeout=120, cwd=cwd
    )


def spans_in(store: Path) -> list[int]:
    """(rows, distinct row keys) of spans in a folder that nobody holds."""
    done = run("-c", COUNT, str(store), cwd=store)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_a_writer_on_chdb_ends_in_order_with_everything_written(
    buffer: Buffer, writer: Child, store: Path, broker: Broker
) -> None:
    await send(buffer, 20)
    await eventually(lambda: is_drained(broker))

    writer.stop()

    assert writer.returncode == 0, writer.output()
    assert spans_in(store) == [40, 40]


async def test_a_writer_killed_while_it_writes_leaves_every_row_once(
    buffer: Buffer, writer: Child, store: Path, tmp_path: Path, broker: Broker
) -> None:
    await send(buffer, 20)
    await eventually(lambda: has_manifest(broker) or is_drained(broker))
    os.kill(writer.pid, 9)
    writer.wait()

    again = Child(
        [*WRITER, "--redis-url", broker.url, "--clickhouse-url", f"chdb://{store}"],
        name="again",
        folder=tmp_path,
    )
    try:
        again.await_that(lambda: is_drained(broker), what="drain the broker")
    finally:
        again.stop()

    assert spans_in(store) == [40, 40]


def test_a_folder_that_is_held_names_who_holds_it(writer: Child, store: Path) -> None:
    done = run("-m", "rankscope", "migrate", "--clickhouse-url", f"chdb://{store}")

    assert done.returncode == 1
    assert f"{store} is held by pid {writer.pid}" in done.stderr


async def send(buffer: Buffer, count: int) -> None:
    sender = Sender()
    for _ in range(count):
        sealed = sender.next()
        offer = Offer(sealed.payload, sealed.incarnation, sealed.seq, sealed.digest, sealed.rows, sealed.week, 0)
        await buffer.accept(shard_of("run", sender.incarnation), offer, budget=10**9)


def has_manifest(broker: Broker) -> bool:
    with broker.client() as client:
        return any(client.exists(begun_key(shard)) for shard in range(SHARDS))
