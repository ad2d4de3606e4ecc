"""1,000 ranks at one gateway: a stream and a batch of 300 statistics a second each, keys on.

Gateway and broker alone, on the machine that also runs the ranks: what the broker holds is taken away as
if it had been written, so that the figures are the gateway's own.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rankscope_ingest.broker_keys import bytes_key, stream_key
from rankscope_proto.identity import SHARDS
from rankscope_proto.keys import KeyFile, Scope
from tests.bench.report import Report
from tests.bench.streams import RANKS
from tests.bench.usage import cpu_s, rss_mib
from tests.ground.brokers import Broker
from tests.ground.processes import Children, answers, free_port, python

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

CLIENTS = 4
SECONDS = 30.0


@pytest.fixture
def emptied(broker: Broker) -> Iterator[None]:
    """Takes away what the broker holds, twice a second."""
    is_over = threading.Event()

    def take_away() -> None:
        with broker.client() as client:
            while not is_over.wait(0.5):
                empty(client)

    thread = threading.Thread(target=take_away)
    thread.start()
    yield
    is_over.set()
    thread.join()


def empty(client: redis.Redis) -> None:
    """Leaves no entry in any shard."""
    for shard in range(SHARDS):
        client.delete(stream_key(shard), bytes_key(shard))


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    """Processes that end with the test."""
    started = Children(tmp_path)
    yield started
    started.stop()


def test_a_thousand_streams_of_a_batch_a_second(
    broker: Broker, emptied: None, children: Children, tmp_path: Path, report: Report
) -> None:
    key, _ = KeyFile(tmp_path / "keys.json").create(["default"], [Scope.INGEST])
    port = free_port()
    listen = f"127.0.0.1:{port}"
    options = ["--listen", listen, "--redis-url", broker.url, "--keys", tmp_path / "keys.json"]
    gateway = children.start(python("rankscope", "gateway", *options), name="gateway")
    gateway.await_that(lambda: answers(port), what="listen")
    share, before = RANKS // CLIENTS, cpu_s(gateway.pid)
    ranks = [
        children.start(
            python("tests.bench.streams", listen, key, str(first), str(share), str(SECONDS)), name=f"r{first}"
        )
        for first in range(0, RANKS, share)
    ]

    most_mib = 0.0
    while any(child.returncode is None for child in ranks):
        most_mib = max(most_mib, rss_mib(gateway.pid))
        for child in ranks:
            child.await_that(lambda: True, what="go on")
        threading.Event().wait(0.2)
    told = [json.loads(child.output().splitlines()[-1]) for child in ranks]

    waits: list[float] = sorted(wait for one in told for wait in one["waits"])
    failures: Counter[str] = Counter()
    for one in told:
        failures.update(one["failures"])
    spent = cpu_s(gateway.pid) - before
    assert waits, ranks[0].output()
    report.judge("1,000 streams: failures", failures.total(), "batches", sense="at most", target=0)
    report.add("1,000 streams: acknowledged", len(waits) / SECONDS, "batches/s")
    report.add("1,000 streams: acknowledged after, p50", waits[len(waits) // 2] * 1e3, "ms")
    report.judge(
        "1,000 streams: acknowledged after, p99",
        waits[int(len(waits) * 0.99)] * 1e3,
        "ms",
        sense="at most",
        target=1_000,
    )
    report.judge("1,000 streams: memory of the gateway, most", most_mib, "MiB", sense="at most", target=400)
    report.add("1,000 streams: CPU of the gateway", spent / len(waits) * 1e6, "µs/batch")
    assert not failures
