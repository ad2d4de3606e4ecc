"""The broker may lose what it holds, be full, be slow or be emptied by hand: the spool has it all."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import redis

from rankscope_proto.identity import SHARDS
from tests.ground.brokers import Broker
from tests.ground.processes import Children, free_port, python, wait_until
from tests.ground.stacks import clean_environ
from tests.system.site import STREAM, Site
from tests.system.trial import Trial

STREAMS = [STREAM.format(shard=shard) for shard in range(SHARDS)]


@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_killed_broker_is_back_in_seconds_and_nothing_is_lost(trial: Trial, times: int) -> None:
    trial.add_source()
    trial.await_stored(5)

    for _ in range(times):
        trial.site.broker.kill()
        trial.site.broker.start()
        assert not trial.fresh().findings

    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.parametrize(
    "cut", [37, 5_000_000, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 3_000, 100_000))]
)
def test_a_power_loss_takes_the_brokers_tail_and_the_spool_makes_up_for_it(trial: Trial, cut: int) -> None:
    trial.add_source()
    trial.await_stored(5)
    writer = trial.site.parts["writer"]
    writer.freeze()
    wait_until(lambda: trial.site.entries() > 5, what="entries that only the broker and the spool have")

    trial.site.broker.kill()
    taken = trial.site.broker.cut_tail(cut)
    trial.site.broker.start()
    writer.resume()

    assert taken
    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report


def flush(client: redis.Redis) -> None:
    client.flushall()


def delete_streams(client: redis.Redis) -> None:
    client.delete(*STREAMS)


def trim_streams(client: redis.Redis) -> None:
    for stream in STREAMS:
        client.xtrim(stream, maxlen=2, approximate=False)


def delete_middle(client: redis.Redis) -> None:
    for stream in STREAMS:
        entries = cast("list[tuple[bytes, object]]", client.xrange(stream))
        middle = [identity for identity, _ in entries[1:-1]]
        if middle:
            client.xdel(stream, *middle)


def forget_everything_but_streams(client: redis.Redis) -> None:
    keys = cast("list[bytes]", client.keys("rankscope:*"))
    others = [key for key in keys if key.decode() not in STREAMS]
    if others:
        client.delete(*others)


Damage = Callable[[redis.Redis], None]
MISTAKES: list[Damage] = [flush, delete_streams, trim_streams, delete_middle, forget_everything_but_streams]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_what_is_deleted_from_the_broker_by_hand_comes_again(trial: Trial, mistake: Damage) -> None:
    trial.add_source()
    trial.await_stored(5)
    writer = trial.site.parts["writer"]
    writer.freeze()
    wait_until(lambda: trial.site.entries() > 5, what="entries that only the broker and the spool have")

    with trial.site.broker.client() as client:
        mistake(client)
    writer.resume()

    assert not trial.fresh().findings
    report = trial.settle(150)
    assert report.is_clean, report


@pytest.mark.timeout(240)
def test_an_emptied_stream_comes_again_though_nothing_follows(trial: Trial) -> None:
    trial.add_source()
    trial.await_stored(5)
    writer = trial.site.parts["writer"]
    writer.freeze()
    wait_until(lambda: trial.site.entries() > 5, what="entries that only the broker and the spool have")
    trial.finish()

    with trial.site.broker.client() as client:
        delete_streams(client)
    writer.resume()

    trial.await_drained(150)
    report = trial.judge()
    assert report.is_clean, report


@pytest.mark.parametrize("seconds", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_a_broker_that_sleeps_is_waited_for(trial: Trial, seconds: int) -> None:
    trial.add_source()
    trial.await_stored(5)

    with redis.Redis.from_url(trial.site.broker.url, socket_timeout=60) as client:
        client.execute_command("DEBUG", "SLEEP", str(seconds))

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report


def test_a_full_broker_pushes_back_and_is_drained(trial: Trial) -> None:
    trial.add_source()
    trial.await_stored(5)
    writer = trial.site.parts["writer"]
    writer.freeze()
    wait_until(lambda: trial.site.entries() > 5, what="entries")
    with trial.site.broker.client() as client:
        client.config_set("maxmemory", 1_000_000)  # below what an empty one takes: every plain write is refused
        held = trial.site.entries()
        writer.resume()

        wait_until(lambda: trial.site.entries() < held, what="a full broker that is drained all the same")
        client.config_set("maxmemory", 256 * 2**20)

    assert not trial.fresh().findings
    report = trial.settle()
    assert report.is_clean, report


@pytest.mark.parametrize("tier", ["gateway", "writer"])
def test_a_broker_that_evicts_is_refused_at_the_start(tier: str, children: Children, tmp_path: Path) -> None:
    folder = tmp_path / "evicting"
    folder.mkdir()
    broker = Broker(folder, maxmemory_policy="allkeys-lru")
    broker.start()
    try:
        environ = clean_environ(
            RANKSCOPE_REDIS_URL=broker.url,
            RANKSCOPE_GATEWAY_LISTEN=f"127.0.0.1:{free_port()}",
            RANKSCOPE_CLICKHOUSE_URL=f"http://127.0.0.1:{free_port()}/default",
        )
        refused = children.start(python("rankscope", tier), name=tier, environ=environ)

        assert refused.wait(30) == 1
        assert "noeviction" in refused.output()
    finally:
        broker.stop()


@pytest.mark.slow
def test_tiers_wait_for_a_broker_that_starts_last(own_site: Site) -> None:
    own_site.add_tiers()
    own_site.broker.kill()
    trial = Trial(own_site, "last")
    try:
        trial.add_source()
        own_site.broker.start()

        trial.await_stored(5)
        report = trial.settle()
    finally:
        trial.stop()
    assert report.is_clean, report
