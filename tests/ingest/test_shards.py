"""One writer at a time: waiting, taking over from the dead, and ending when the shards are lost."""

import asyncio
import os

import orjson
import pytest

from rankscope_ingest import shards
from rankscope_ingest.buffer import WRITER_CLAIM, Buffer, Claimant
from rankscope_ingest.errors import BrokerUnfit
from rankscope_ingest.shards import holding_the_shards

NO_PROCESS = 2**22 + 1
"""A process id above the greatest that Linux gives."""


async def hold_as_another(buffer: Buffer, *, pid: int, place: str, replaces: bytes = b"") -> None:
    shown = orjson.dumps({"node": "n", "place": place, "pid": pid, "id": "other"})
    await buffer.claim(WRITER_CLAIM, Claimant(b"other", shown, replaces), lifetime_ms=60_000)


def this_place() -> str:
    return orjson.loads(shards._claimant().shown)["place"]  # pyright: ignore[reportPrivateUsage] # what it writes


async def holds(buffer: Buffer) -> bool:
    """Whether a writer gets the shards within a moment."""
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.3, stop.set)
    async with holding_the_shards(buffer, stop):
        holder = await buffer.claim_holder(WRITER_CLAIM)
    return holder is not None and holder[0] != b"other"


async def test_free_shards_are_held_and_given_back(buffer: Buffer) -> None:
    assert await holds(buffer)
    assert await buffer.claim_holder(WRITER_CLAIM) is None


async def test_the_shards_of_a_dead_writer_of_this_node_are_taken_at_once(buffer: Buffer) -> None:
    await hold_as_another(buffer, pid=NO_PROCESS, place=this_place())

    assert await holds(buffer)


@pytest.mark.parametrize("where", ["here", "in another container or on another node"])
async def test_the_shards_of_a_writer_that_may_live_are_waited_for(buffer: Buffer, where: str) -> None:
    pid, place = (os.getpid(), this_place()) if where == "here" else (NO_PROCESS, where)
    await hold_as_another(buffer, pid=pid, place=place)

    assert not await holds(buffer)


async def test_a_writer_that_lost_the_shards_ends_with_the_reason(
    buffer: Buffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RENEW_S", 0.05)
    stop = asyncio.Event()

    with pytest.raises(BrokerUnfit, match="another writer took the shards"):
        await hold_until_lost(buffer, stop)


async def hold_until_lost(buffer: Buffer, stop: asyncio.Event) -> None:
    """Holds the shards and lets another writer take them."""
    async with holding_the_shards(buffer, stop):
        holder = await buffer.claim_holder(WRITER_CLAIM)
        assert holder is not None
        await hold_as_another(buffer, pid=1, place="elsewhere", replaces=holder[0])
        await asyncio.wait_for(stop.wait(), 20)
