"""The broker as the gateway uses it: streams, watermarks, budgets and claims.

What the writer does with the same streams is in `streams.py`. Everything that writes is one Lua
script which may be repeated without harm (`connection.py` says why).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import cast
from uuid import uuid4

from pydantic import SecretStr

from rankscope_ingest.broker_keys import bytes_key, claim_key, state_key, stream_key
from rankscope_ingest.connection import TIMEOUT_S, Connection
from rankscope_ingest.errors import BrokerUnfit
from rankscope_ingest.scripts import Script
from rankscope_proto.identity import SHARDS

__all__ = [
    "Accepted",
    "Buffer",
    "Claimant",
    "Offer",
    "Outcome",
    "Stand",
    "bytes_key",
    "claim_key",
    "state_key",
    "stream_key",
]

MEMORY_OVER_BUDGETS = 1.5
"""Entries take 1.15 to 1.26 of their bytes in Redis, states and claims the rest."""
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
        again: Whether the sender cannot rule out that it was accepted before.
    """

    payload: bytes
    incarnation: bytes
    seq: int
    digest: bytes
    rows: int
    week: int
    base: int
    expanded: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True)
class Stand:
    """Where an incarnation stands; both 0 where nothing is known of it.

    Attributes:
        accepted: Every seq below it is in the broker, or was declared lost by a base.
        durable: Every seq below it is in the store, or was declared lost by a base.
    """

    accepted: int
    durable: int


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
        self._stand = Script("stand")
        self._claim = Script("claim")
        self._release = Script("release")

    async def close(self) -> None:
        """Closes every connection."""
        await self._connection.close()

    async def check(self, *, budget: int = 0) -> list[str]:
        """Reads the broker's settings back.

        Args:
            budget: Payload bytes a shard may hold; 0: not looked at.

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
        return list(self._unwise(facts, budget=budget))

    def _unwise(self, facts: Mapping[str, str], *, budget: int) -> Iterator[str]:
        if facts["aof_enabled"] != "1":
            yield f"Redis at {self._address} has appendonly no: what it holds is lost when it restarts"
        memory, needed = int(facts["maxmemory"]), int(SHARDS * budget * MEMORY_OVER_BUDGETS)
        if 0 < memory < needed:
            yield (
                f"Redis at {self._address} has maxmemory {memory}; {SHARDS} shards of {budget} bytes need {needed}: "
                "raise it or lower RANKSCOPE_SHARD_BUDGET_BYTES, or senders meet a full Redis before a full shard"
            )

    async def test_accept(self) -> None:
        """Offers a batch of its own twice, beside the shards, and looks that it enters once.

        Raises:
            BrokerUnfit: It does not, or the broker takes no writes at all, as a replica.
            Busy: The broker is full, or cannot write to its disk.
        """
        own = uuid4()
        keys = [f"rankscope:{{selftest}}:{name}" for name in ("in", own.hex, "bytes")]
        offer = Offer(b"selftest", own.bytes, 0, own.bytes, 0, 0, 0)
        outcomes = [(await self._accept_under(keys, offer, budget=2**30)).outcome for _ in range(2)]
        await self._connection.command("DEL", *keys)
        if outcomes != [Outcome.ACCEPTED, Outcome.DUPLICATE]:
            raise BrokerUnfit(
                f"Redis at {self._address} answered a batch offered twice with {outcomes[0].name} and "
                f"{outcomes[1].name}; it must be ACCEPTED and DUPLICATE: is it Redis or Valkey, from 7.0 on?"
            )

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
        keys = (stream_key(shard), state_key(shard, incarnation), bytes_key(shard))
        return await self._accept_under(keys, offer, budget=budget)

    async def stands(self, shard: int, incarnations: Sequence[bytes]) -> list[Stand]:
        """Where incarnations of one shard stand, in the order asked for.

        Args:
            shard: 0-based.
            incarnations: 16 bytes each; at least one.
        """
        keys = [stream_key(shard), *(state_key(shard, incarnation) for incarnation in incarnations)]
        numbers = cast("list[int]", await self._connection.run(self._stand, keys))
        return [Stand(accepted, durable) for accepted, durable in zip(numbers[::2], numbers[1::2], strict=True)]

    async def _accept_under(self, keys: Sequence[str], offer: Offer, *, budget: int) -> Accepted:
        values = (offer.payload, offer.incarnation, offer.seq, offer.digest, offer.rows, offer.week, offer.base)
        more = (budget, STATE_LIFETIME_S, offer.expanded, int(offer.again))
        outcome, accepted, durable, held = cast(
            "list[int]", await self._connection.run(self._accept, keys, *values, *more)
        )
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
