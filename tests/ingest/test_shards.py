"""Leases over time: equal shares, taking over from the dead, and knowing that one is late."""

import asyncio
import os
from collections.abc import AsyncIterator

import orjson
import pytest
import pytest_asyncio
from pydantic import SecretStr

from rankscope_ingest import shards
from rankscope_ingest.shards import Shards
from rankscope_ingest.streams import Streams, Writer
from rankscope_proto.identity import SHARDS
from tests.ground.brokers import Broker

NO_PROCESS = 2**22 + 1
"""A process id above the greatest that Linux gives."""


class Pokes:
    """Counts how often shards came or went."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest_asyncio.fixture
async def elsewhere(broker: Broker) -> AsyncIterator[Streams]:
    """The streams as another process has them."""
    opened = Streams(SecretStr(broker.url))
    yield opened
    await opened.close()


async def hold_as_another(streams: Streams, *, pid: int, place: str, start: str) -> None:
    """Every free shard goes to a writer that shows itself so."""
    shown = orjson.dumps({"id": "other", "node": "n", "place": place, "pid": pid, "start": start})
    await streams.lease(Writer("other", shown), lifetime_ms=60_000, broker="")


def this_process() -> tuple[str, str]:
    shown = shards._process()  # pyright: ignore[reportPrivateUsage] # what a writer shows
    return str(shown["place"]), str(shown["start"])


async def test_a_writer_alone_holds_every_shard_and_gives_all_back(streams: Streams) -> None:
    mine = Shards(streams, changed=Pokes())
    await mine.tick()
    held = len(mine.held)

    await mine.leave()
    for shard in list(mine.held):
        await mine.hand_over(shard, is_clean=True)

    next_one = Shards(streams, changed=Pokes())
    await next_one.tick()
    assert held == SHARDS
    assert len(next_one.held) == SHARDS
    assert all(lease.is_clean for lease in next_one.held.values())


async def test_two_writers_come_to_equal_shares(streams: Streams, elsewhere: Streams) -> None:
    changed = Pokes()
    first, second = Shards(streams, changed=changed), Shards(elsewhere, changed=Pokes())
    await first.tick()
    await second.tick()
    before = (len(first.held), len(second.held))

    await first.tick()
    for shard in first.surplus():
        await first.hand_over(shard, is_clean=True)
    await second.tick()

    assert before == (SHARDS, 0)
    assert (len(first.held), len(second.held)) == (SHARDS // 2, SHARDS // 2)
    assert not first.held.keys() & second.held.keys()
    assert not first.surplus()
    assert changed.count == 3  # the broker was met, the shards came, some were to go


@pytest.mark.parametrize("gone", ["no such process", "another process under its number"])
async def test_the_shards_of_a_dead_writer_of_this_machine_are_taken_at_once(
    streams: Streams, elsewhere: Streams, gone: str
) -> None:
    place, start = this_process()
    pid = NO_PROCESS if gone == "no such process" else os.getpid()
    await hold_as_another(elsewhere, pid=pid, place=place, start=f"{start}0")
    mine = Shards(streams, changed=Pokes())

    await mine.tick()

    assert len(mine.held) == SHARDS
    assert not any(lease.is_clean for lease in mine.held.values())


@pytest.mark.parametrize("where", ["here", "in another container or on another node"])
async def test_the_shards_of_a_writer_that_may_live_are_left_to_it(
    streams: Streams, elsewhere: Streams, where: str
) -> None:
    place, start = this_process()
    pid = os.getpid() if where == "here" else NO_PROCESS
    await hold_as_another(elsewhere, pid=pid, place=place if where == "here" else where, start=start)
    mine = Shards(streams, changed=Pokes())

    await mine.tick()

    assert not mine.held


async def test_nothing_is_begun_under_a_lease_that_is_nearly_over(streams: Streams) -> None:
    clock = Clock()
    mine = Shards(streams, changed=Pokes(), monotonic=clock)
    await mine.tick()
    clock.now += shards.LIFETIME_MS / 1_000 * 0.7
    waiting = asyncio.create_task(mine.assure([0]))
    await asyncio.wait({waiting}, timeout=0.05)
    was_waiting = not waiting.done()

    await mine.tick()

    await asyncio.wait_for(waiting, 10)
    assert was_waiting


async def test_who_is_waited_for_no_longer_than_until_its_shard_is_lost(streams: Streams, elsewhere: Streams) -> None:
    clock = Clock()
    mine = Shards(streams, changed=Pokes(), monotonic=clock)
    await mine.tick()
    clock.now += shards.LIFETIME_MS / 1_000
    waiting = asyncio.create_task(mine.assure([0]))
    shown = b'{"id":"other","place":"elsewhere","pid":1,"start":""}'
    await elsewhere.lease(Writer("other", shown), lifetime_ms=60_000, broker="", dead=[mine.writer])

    await mine.tick()

    await asyncio.wait_for(waiting, 10)
    assert 0 not in mine.held


async def test_another_broker_under_the_address_makes_everything_doubtful(broker: Broker, streams: Streams) -> None:
    mine = Shards(streams, changed=Pokes())
    await mine.tick()
    for shard in list(mine.held):
        await mine.hand_over(shard, is_clean=True)
    await mine.tick()
    before = (mine.epoch, {lease.is_clean for lease in mine.held.values()})
    broker.restart()

    with pytest.raises(Exception, match="did not answer"):
        await mine.tick()
    await mine.tick()

    assert before == (1, {True})
    assert (mine.epoch, {(lease.epoch, lease.is_clean) for lease in mine.held.values()}) == (2, {(2, False)})


async def test_an_emptied_broker_draws_other_fences_so_that_every_shard_is_opened_anew(
    broker: Broker, streams: Streams
) -> None:
    mine = Shards(streams, changed=Pokes())
    await mine.tick()
    before = mine.fences()
    with broker.client() as client:
        client.flushall()

    await mine.tick()

    assert mine.fences().keys() == before.keys()
    assert all(fence > before[shard] for shard, fence in mine.fences().items())
    assert not any(lease.is_clean for lease in mine.held.values())
