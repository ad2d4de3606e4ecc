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
from pathlib import Path
from typing import Protocol

import orjson

from rankscope_ingest.buffer import WRITER_CLAIM, Claimant
from rankscope_ingest.errors import BrokerUnavailable
from rankscope_ingest.patience import patiently

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
    """Holds the shards inside the block; waits for them until they are free or `stop` is set."""
    holder = os.urandom(16).hex().encode()
    shown = orjson.dumps({"node": socket.gethostname(), "boot": boot_id(), "pid": os.getpid(), "id": holder.decode()})
    while not await _claimed(claims, holder, shown=shown) and not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RENEW_S)
    renewing = asyncio.create_task(_renew(claims, holder, shown=shown), name="renew the claim of the shards")
    try:
        yield
    finally:
        renewing.cancel()
        with suppress(BrokerUnavailable):
            await claims.release(WRITER_CLAIM, holder=holder)


def boot_id() -> str:
    """The boot of this node; process ids compare within one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


async def _claimed(claims: Claims, holder: bytes, *, shown: bytes) -> bool:
    other = await _claim(claims, holder, shown=shown, replaces=b"")
    if other is None:
        return True
    found = orjson.loads(other)
    if _is_dead(found["boot"], found["pid"]):
        return await _claim(claims, holder, shown=shown, replaces=found["id"].encode()) is None
    logger.info("another writer holds the shards; waiting", extra={"node": found["node"], "pid": found["pid"]})
    return False


def _is_dead(boot: str, pid: int) -> bool:
    return boot == boot_id() and not Path(f"/proc/{pid}").exists()


async def _claim(claims: Claims, holder: bytes, *, shown: bytes, replaces: bytes) -> bytes | None:
    return await claims.claim(WRITER_CLAIM, Claimant(holder, shown, replaces), lifetime_ms=LIFETIME_MS)


async def _renew(claims: Claims, holder: bytes, *, shown: bytes) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        if await patiently(lambda: _claim(claims, holder, shown=shown, replaces=b"")) is not None:
            logger.error("the claim of the shards lapsed and another writer took it; this one must stop")
            return
