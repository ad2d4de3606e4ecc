"""One writer at a time holds the shards: the order of a rank's batches depends on it.

The claim lapses when its holder dies; a writer that finds it held waits, which makes a second
writer a standby. On the holder's own node a dead holder is told by its process id, so a restart
does not wait.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import orjson

from rankscope_ingest.buffer import Claimant
from rankscope_ingest.errors import BrokerUnavailable, BrokerUnfit, Busy
from rankscope_ingest.patience import patiently
from rankscope_ingest.streams import WRITER_CLAIM

logger = logging.getLogger(__name__)

LIFETIME_MS = 10_000
RENEW_S = 3.0


class Claims(Protocol):
    """The broker as claims need it; `Buffer` says what each method promises."""

    async def claim(self, key: str, claimant: Claimant, *, lifetime_ms: int) -> bytes | None:
        """Takes or keeps a claim; what its holder shows, where it is another."""
        ...

    async def release(self, key: str, *, holder: bytes) -> None:
        """Gives a claim back."""
        ...


@asynccontextmanager
async def holding_the_shards(claims: Claims, stop: asyncio.Event) -> AsyncGenerator[None]:
    """Holds the shards inside the block; waits for them until they are free or `stop` is set.

    Args:
        claims: The broker.
        stop: Ends the waiting; set from here when the shards are lost, so that the block ends.

    Raises:
        BrokerUnfit: Another writer took the shards while the block ran.
    """
    claimant = _claimant()
    while not await _claimed(claims, claimant) and not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RENEW_S)
    renewing = asyncio.create_task(_renew_until_lost(claims, claimant, stop=stop), name="renew the claim of the shards")
    try:
        yield
        if renewing.done():
            renewing.result()
            raise BrokerUnfit("another writer took the shards; this one was silent for too long and ends")
    finally:
        renewing.cancel()
        with suppress(BrokerUnavailable, Busy):  # it lapses by itself
            await claims.release(WRITER_CLAIM, holder=claimant.id)


def _claimant() -> Claimant:
    holder = os.urandom(16).hex()
    shown = {"node": socket.gethostname(), "place": _place(), "pid": os.getpid(), "id": holder}
    return Claimant(holder.encode(), orjson.dumps(shown), b"")


def _place() -> str:
    """Where process ids compare: one boot of one node, and one container of it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


async def _claimed(claims: Claims, claimant: Claimant) -> bool:
    other = await claims.claim(WRITER_CLAIM, claimant, lifetime_ms=LIFETIME_MS)
    if other is None:
        return True
    found = orjson.loads(other)
    if _is_dead(found["place"], found["pid"]):
        successor = replace(claimant, replaces=found["id"].encode())
        return await claims.claim(WRITER_CLAIM, successor, lifetime_ms=LIFETIME_MS) is None
    logger.info("another writer holds the shards; waiting", extra={"node": found["node"], "pid": found["pid"]})
    return False


def _is_dead(place: str, pid: int) -> bool:
    return place == _place() and not Path(f"/proc/{pid}").exists()


async def _renew_until_lost(claims: Claims, claimant: Claimant, *, stop: asyncio.Event) -> None:
    is_held = True
    while is_held:
        await asyncio.sleep(RENEW_S)
        other = await patiently(lambda: claims.claim(WRITER_CLAIM, claimant, lifetime_ms=LIFETIME_MS))
        is_held = other is None
    stop.set()
