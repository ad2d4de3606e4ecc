"""The broker as the gateway uses it: streams, watermarks, budgets and claims.

What the writer does with the same streams is in `streams.py`. Everything that writes is one Lua
script which may be repeated without harm (`connection.py` says why).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import cast

from pydantic import SecretStr

from rankscope_ingest.broker_keys import bytes_key, claim_key, quarantine_key, state_key, stream_key
from rankscope_ingest.connection import TIMEOUT_S, Connection
from rankscope_ingest.errors import BrokerUnfit
from rankscope_ingest.scripts import Script

__all__ = [
    "Accepted",
    "Buffer",
    "Claimant",
    "Offer",
    "Outcome",
    "bytes_key",
    "claim_key",
    "quarantine_key",
    "state_key",
    "stream_key",
]

STATE_LIFETIME_S = 7 * 86_400
"""How long an incarnation that sends nothing is remembered; its `base` carries it on after that."""


class Outcome(IntEnum):
    """What became of a batch: the codes of `Ack.Outcome`, and 0 for no room."""

    NO_ROOM = 0
    ACCEPTED = 1
    DUPLICATE = 2
    EXPECTED = 3
    CONFLICT = 4


@dataclass(frozen=True, slots=True)
class Accepted:
    """Where an incarnation stands after a batch was offered.

    Attributes:
        outcome: What became of the batch.
        accepted: Every seq below it is in the broker; with `EXPECTED` the seq to go on from.
        durable: Every seq below it is in the store.
        held: Payload bytes the shard holds.
    """

    outcome: Outcome
    accepted: int
    durable: int
    held: int


@dataclass(frozen=True, slots=True)
class Offer:
    """A batch offered to the broker.

    Attributes:
        payload: The sealed bytes, with the receive time appended.
        incarnation: 16 bytes.
        seq: Number of the batch in its incarnation.
        digest: 16 bytes, of the sealed bytes.
        rows: Rows in all sections.
        week: Monday of the sealing time, days since 1970-01-01.
        base: Lowest seq the sender still holds.
        expanded: Bytes that the rows take once each carries its own text; 0: about the payload's.
    """

    payload: bytes
    incarnation: bytes
    seq: int
    digest: bytes
    rows: int
    week: int
    base: int
    expanded: int = 0


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who asks for a claim.

    Attributes:
        id: Its id.
        shown: What others are shown of it.
        replaces: Id of a holder known to be dead; empty: none.
    """

    id: bytes
    shown: bytes
    replaces: bytes


class Buffer:
    """The broker's streams, watermarks, budgets and claims.

    Args:
        url: redis://, rediss:// or unix://.
        read_timeout_s: Longest wait for an answer; a blocking read adds its own wait.
    """

    def __init__(self, url: SecretStr, *, read_timeout_s: float = TIMEOUT_S) -> None:
        self._connection = Connection(url, read_timeout_s=read_timeout_s)
        self._address = self._connection.address
        self._accept = Script("accept")
        self._claim = Script("claim")
        self._release = Script("release")

    async def close(self) -> None:
        """Closes every connection."""
        await self._connection.close()

    async def check(self) -> list[str]:
        """Reads the broker's settings back.

        Returns:
            Warnings: what is legal but loses more than it must.

        Raises:
            BrokerUnfit: It is too old, or evicts.
            BrokerUnavailable: It does not answer.
        """
        facts = await self._connection.info()
        version = tuple(int(part) for part in facts["redis_version"].split(".")[:2])
        if version < (7, 0):
            raise BrokerUnfit(
                f"Redis at {self._address} is version {facts['redis_version']}; "
                "rankscope needs 7.0 or newer, or Valkey: point RANKSCOPE_REDIS_URL at one"
            )
        if (policy := facts["maxmemory_policy"]) != "noeviction":
            raise BrokerUnfit(
                f"Redis at {self._address} has maxmemory-policy {policy}, which eats whole streams when memory "
                "runs out; set `maxmemory-policy noeviction` (CONFIG SET or redis.conf)"
            )
        if facts["aof_enabled"] == "1":
            return []
        return [f"Redis at {self._address} has appendonly no: what it holds is lost when it restarts"]

    async def ping(self) -> None:
        """Returns when the broker answers.

        Raises:
            BrokerUnavailable: It does not.
            Busy: It answers, and cannot write to its disk.
        """
        await self._connection.command("PING")

    async def accept(self, shard: int, offer: Offer, *, budget: int) -> Accepted:
        """Offers a batch to its shard; safe to repeat.

        Args:
            shard: 0-based.
            offer: The batch.
            budget: Payload bytes the shard may hold.

        Raises:
            Busy: The broker is at its memory limit, or cannot write to its disk.
            BrokerUnavailable: It may or may not have been accepted; offering it again tells.
        """
        incarnation = offer.incarnation
        keys = (stream_key(shard), state_key(shard, incarnation), bytes_key(shard), quarantine_key(shard))
        values = (offer.payload, incarnation, offer.seq, offer.digest, offer.rows, offer.week, offer.base)
        answer = await self._connection.run(self._accept, keys, *values, budget, STATE_LIFETIME_S, offer.expanded)
        outcome, accepted, durable, held = cast("list[int]", answer)
        return Accepted(Outcome(outcome), accepted, durable, held)

    async def held(self, shard: int) -> int:
        """Payload bytes a shard holds."""
        answer = await self._connection.command("GET", bytes_key(shard))
        return int(answer) if isinstance(answer, bytes) else 0

    async def claim(self, key: str, claimant: Claimant, *, lifetime_ms: int) -> bytes | None:
        """Takes or keeps a claim; returns None when it is the caller's, else what its holder shows.

        Args:
            key: The claim.
            claimant: The caller.
            lifetime_ms: After which the claim lapses.
        """
        answer = await self._connection.run(
            self._claim, [key], claimant.id, claimant.shown, lifetime_ms, claimant.replaces
        )
        return cast("bytes | None", answer)

    async def release(self, key: str, *, holder: bytes) -> None:
        """Gives a claim back, if it is still the caller's."""
        await self._connection.run(self._release, [key], holder)

    async def claim_holder(self, key: str) -> tuple[bytes, bytes] | None:
        """Id of a live claim's holder and what it shows; None where nobody holds it."""
        answer = await self._connection.command("HMGET", key, "id", "shown")
        holder, shown = cast("list[bytes | None]", answer)
        return (holder, shown) if holder is not None and shown is not None else None

    async def mark_once(self, key: str) -> bool:
        """Whether the caller is the first to set this mark within the lifetime of a state."""
        return await self._connection.command("SET", key, "1", "NX", "EX", STATE_LIFETIME_S) is not None
