"""Which shards this writer holds: leases with fences, shared out among the living writers.

A rank's batches keep their order because one writer at a time reads a shard. Each writer aims at an
equal share; who has more gives shards back between two groups, who has less takes what is free. A
lease lapses when its holder is silent for `LIFETIME_MS`; on the holder's own machine a dead holder
is told by its process id, so that a restart does not wait. A lease counts by the monotonic clock,
from before the call that renewed it: a writer that was frozen knows that it is late.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import orjson

from rankscope_ingest.errors import BrokerUnavailable, Busy
from rankscope_ingest.streams import Leases, Streams, Writer
from rankscope_proto.identity import SHARDS

logger = logging.getLogger(__name__)

LIFETIME_MS = 10_000
RENEW_S = 1.0
"""Below the third of a lifetime that `delivery.md` asks for: so soon are free shards taken, and shares handed over."""
LEFT_SHARE = 1 / 3
"""Nothing is begun under a lease of which less is left."""


class LeaseBroker(Protocol):
    """The broker as leases need it; `Streams` says what each method promises."""

    @property
    def links(self) -> int:
        """Connections opened so far."""
        ...

    async def broker(self) -> str:
        """What identifies the broker's process."""
        ...

    async def lease(
        self, writer: Writer, *, lifetime_ms: int, broker: str, dead: Sequence[str] = (), takes: bool = True
    ) -> Leases:
        """Renews and takes leases."""
        ...

    async def hand_over(self, writer: str, shard: int, *, fence: int, broker: str) -> None:
        """Gives a shard back."""
        ...


if TYPE_CHECKING:
    _broker: type[LeaseBroker] = Streams


@dataclass(frozen=True, slots=True)
class Held:
    """A shard that is held.

    Attributes:
        fence: Number of its taking.
        epoch: Number of the broker's process under which it was seen; another one may have lost its newest part.
        until: When the lease ends, by the monotonic clock, in s.
        is_clean: Whether nothing of it can be in the store yet.
    """

    fence: int
    epoch: int
    until: float
    is_clean: bool


class Shards:
    """The shards of one writer.

    Args:
        broker: Keeps the leases.
        changed: Called when shards came, went, or are to be given back.
        monotonic: A clock in seconds.

    Attributes:
        writer: This writer's id.
        held: The shards held now.
        epoch: Number of the broker's process, from 1; 0 before the first answer.
    """

    def __init__(
        self,
        broker: LeaseBroker,
        *,
        changed: Callable[[], Awaitable[None]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.writer = os.urandom(16).hex()
        self.held: dict[int, Held] = {}
        self.epoch = 0
        self._shown = orjson.dumps({"id": self.writer, **_process()})
        self._broker = broker
        self._changed = changed
        self._monotonic = monotonic
        self._ticked = asyncio.Condition()
        self._share = SHARDS
        self._links = -1
        self._identity = ""

    async def keep(self) -> None:
        """Renews the leases for ever."""
        failures = 0
        while True:
            try:
                await self.tick()
                failures = 0
            except (BrokerUnavailable, Busy) as error:
                if failures & (failures - 1) == 0:
                    logger.warning("the leases were not renewed: %s", error)
                failures += 1
            await asyncio.sleep(RENEW_S)

    async def tick(self) -> None:
        """Renews what is held, and takes what is free up to the share."""
        await self.is_same_broker()
        sent = self._monotonic()
        found = await self._lease(())
        if not await self.is_same_broker():  # it was asked by the name of the one before
            found = await self._lease(())
        if dead := {str(other["id"]) for other in _others(found) if _is_dead(other)}:
            logger.info("taking over from writers that ended", extra={"writers": sorted(dead)})
            found = await self._lease(sorted(dead))
        self._share = -(-SHARDS // found.writers)
        await self._note(found, until=sent + LIFETIME_MS / 1_000)

    async def is_same_broker(self) -> bool:
        """Whether the broker is the process that answered before; asks it only over a new connection."""
        links = self._broker.links
        if links == self._links:
            return True
        identity = await self._broker.broker()
        self._links = links
        if identity == self._identity:
            return True
        self._identity = identity
        self.epoch += 1
        self.held = {shard: replace(lease, epoch=self.epoch, is_clean=False) for shard, lease in self.held.items()}
        await self._changed()
        return self.epoch == 1

    async def assure(self, shards: Iterable[int]) -> None:
        """Returns once each of these shards is lost or has enough of its lease left to begin something under it."""
        least = LIFETIME_MS / 1_000 * LEFT_SHARE
        wanted = set(shards)
        async with self._ticked:
            await self._ticked.wait_for(
                lambda: all(self.held[s].until - self._monotonic() > least for s in wanted & self.held.keys())
            )

    def fences(self) -> dict[int, int]:
        """The fence of each shard held."""
        return {shard: lease.fence for shard, lease in self.held.items()}

    def lose(self, shard: int, *, fence: int) -> None:
        """Notes that a lease is another writer's, or lapsed; the next renewal tells whether the shard comes back."""
        if shard in self.held and self.held[shard].fence == fence:
            del self.held[shard]

    def surplus(self) -> list[int]:
        """The shards beyond this writer's share, the newest last."""
        return list(self.held)[self._share :]

    async def hand_over(self, shard: int, *, is_clean: bool) -> None:
        """Gives a shard back.

        Args:
            shard: Held.
            is_clean: Whether nothing of it is begun.
        """
        lease = self.held.pop(shard)
        broker = self._identity if is_clean else ""
        await self._broker.hand_over(self.writer, shard, fence=lease.fence, broker=broker)

    async def leave(self) -> None:
        """Takes no shard any more, and is no longer counted among the living."""
        writer = Writer(self.writer, self._shown)
        await self._broker.lease(writer, lifetime_ms=LIFETIME_MS, broker=self._identity, takes=False)

    async def _lease(self, dead: Sequence[str]) -> Leases:
        writer = Writer(self.writer, self._shown)
        return await self._broker.lease(writer, lifetime_ms=LIFETIME_MS, broker=self._identity, dead=dead)

    async def _note(self, found: Leases, *, until: float) -> None:
        before = self.fences()
        for shard, lease in enumerate(found.shards):
            if not lease.fence:
                self.held.pop(shard, None)
            elif before.get(shard) == lease.fence:
                self.held[shard] = replace(self.held[shard], until=until)
            else:
                self.held.pop(shard, None)
                self.held[shard] = Held(lease.fence, self.epoch, until, lease.how == "clean")
        if before != self.fences():
            logger.info("shards held: %s", ", ".join(map(str, sorted(self.held))) or "none")
        if before != self.fences() or self.surplus():
            await self._changed()
        async with self._ticked:
            self._ticked.notify_all()


def _others(found: Leases) -> list[dict[str, object]]:
    return [orjson.loads(text) for text in {lease.shown for lease in found.shards if lease.shown}]


def _process() -> dict[str, object]:
    pid = os.getpid()
    return {"node": socket.gethostname(), "place": _place(), "pid": pid, "start": _start_of(pid)}


def _place() -> str:
    """Where process ids compare: one boot of one node, and one container of it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def _start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty where none of that id runs."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if facts[0] == "Z" else facts[19]


def _is_dead(other: dict[str, object]) -> bool:
    return other["place"] == _place() and _start_of(int(str(other["pid"]))) != other["start"]
