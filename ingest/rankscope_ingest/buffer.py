"""The broker as the ingest tiers use it; the only module that imports redis.

It promises that every write is one Lua script which may be repeated without harm. redis-py's own
retry is off for that reason among others: it sends a plain XADD again when only the answer was
lost (20 calls, 40 entries). Errors of the driver leave here as `BrokerUnavailable`, `BrokerUnfit`
or `Busy`, with the address and what to try.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import quote

import redis.asyncio
import redis.exceptions
from pydantic import SecretStr
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rankscope_ingest.addresses import shown
from rankscope_ingest.entries import Entry, Group, Manifest, Place
from rankscope_ingest.errors import BrokerUnavailable, BrokerUnfit, Busy, ConfigError
from rankscope_ingest.scripts import Arg, Script
from rankscope_proto.identity import SHARDS

if TYPE_CHECKING:
    from collections.abc import Awaitable

CONSUMER_GROUP = "writers"
CONSUMER = "writer"
MANIFEST = "rankscope:manifest"
WRITER_CLAIM = "rankscope:claim:writer"
STATE_LIFETIME_S = 7 * 86_400
"""How long an incarnation that sends nothing is remembered; its `base` carries it on after that."""
TIMEOUT_S = 5.0
FULL_RETRY_MS = 500
DISK_RETRY_MS = 1_000

Fields = Mapping[bytes, bytes]
"""Fields of a stream entry."""


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


class _Client(Protocol):
    """What is called on redis.asyncio.Redis."""

    def execute_command(self, *args: Arg) -> "Awaitable[object]": ...
    async def aclose(self) -> None: ...


def stream_key(shard: int) -> str:
    """The stream of a shard (0-based); keys of one shard share a hash tag, so a cluster keeps them together."""
    return f"rankscope:{{s{shard:02}}}:in"


def bytes_key(shard: int) -> str:
    """Payload bytes a shard holds."""
    return f"rankscope:{{s{shard:02}}}:bytes"


def state_key(shard: int, incarnation: bytes) -> str:
    """Where an incarnation stands: a hash of `accepted`, `durable` and its last digests."""
    return f"rankscope:{{s{shard:02}}}:incarnation:{incarnation.hex()}"


def quarantine_key(shard: int) -> str:
    """Payloads that came under a seq already taken by another."""
    return f"rankscope:{{s{shard:02}}}:quarantine"


def claim_key(project: str, run_id: str, *, rank: int) -> str:  # the names say it
    """The claim of a rank; a ':' in a name cannot make two claims one."""
    return f"rankscope:claim:{quote(project, safe='')}:{quote(run_id, safe='')}:{rank}"


class Buffer:
    """The broker's streams, watermarks, budgets and claims.

    Args:
        url: redis://, rediss:// or unix://.
        read_timeout_s: Longest wait for an answer; a blocking read adds its own wait.
    """

    def __init__(self, url: SecretStr, *, read_timeout_s: float = TIMEOUT_S) -> None:
        self._address = shown(url)
        try:
            client = redis.asyncio.Redis.from_url(
                url.get_secret_value(),
                protocol=2,  # the shapes below are RESP2's
                socket_timeout=read_timeout_s,
                socket_connect_timeout=TIMEOUT_S,
                socket_read_size=2**18,  # payloads are 50-250 kB: fewer reads
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise ConfigError(f"RANKSCOPE_REDIS_URL is {self._address!r}: {error}") from error
        self._client = cast("_Client", client)
        self._accept = Script("accept")
        self._commit = Script("commit")
        self._manifest = Script("manifest")
        self._claim = Script("claim")
        self._release = Script("release")
        self._prepare = Script("prepare")

    async def close(self) -> None:
        """Closes every connection."""
        await self._client.aclose()

    async def check(self) -> list[str]:
        """Reads the broker's settings back.

        Returns:
            Warnings: what is legal but loses more than it must.

        Raises:
            BrokerUnfit: It is too old, or evicts.
            BrokerUnavailable: It does not answer.
        """
        facts = await self._info()
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
        async with self._mapped():
            await self._client.execute_command("PING")

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
        answer = await self._run(self._accept, keys, *values, budget, STATE_LIFETIME_S, offer.expanded)
        outcome, accepted, durable, held = cast("list[int]", answer)
        return Accepted(Outcome(outcome), accepted, durable, held)

    async def held(self, shard: int) -> int:
        """Payload bytes a shard holds."""
        answer = await self._command("GET", bytes_key(shard))
        return int(answer) if isinstance(answer, bytes) else 0

    async def prepare_reading(self) -> None:
        """Makes the consumer group on every shard; safe to repeat."""
        for shard in range(SHARDS):
            await self._run(self._prepare, [stream_key(shard)], CONSUMER_GROUP)

    async def read(self, *, count: int, block_ms: int) -> list[Entry]:
        """New entries of all shards, each shard's in stream order; empty after `block_ms` without any.

        Args:
            count: Most entries of one shard.
            block_ms: Longest wait for the first entry, above 0.
        """
        return (await self._read([">"] * SHARDS, count=count, block_ms=block_ms))[0]

    async def pending(self, after: Sequence[str], *, count: int) -> tuple[list[Entry], list[Place]]:
        """Entries that were read before and not committed.

        Args:
            after: For each shard the id after which to go on; "0" from the start.
            count: Most entries of one shard.

        Returns:
            The entries, and the places of those whose data the broker no longer has.
        """
        return await self._read(list(after), count=count, block_ms=None)

    async def fetch(self, places: Sequence[Place]) -> list[Entry | None]:
        """The entries at those places, in that order; None where there is none."""
        found: list[Entry | None] = []
        for place in places:
            answer = await self._command("XRANGE", stream_key(place.shard), place.id, place.id)
            rows = cast("list[tuple[bytes, Fields]]", answer)
            found.append(Entry.of(place, rows[0][1]) if rows else None)
        return found

    async def commit(self, group: Group) -> None:
        """Forgets a durable group and moves its senders' durable watermarks; safe to repeat.

        One script a shard: a shard's entries go together, so that recovery can tell a committed
        shard from one that is not.
        """
        for shard, entries in group.by_shard().items():
            durable = {entry.incarnation: entry.seq + 1 for entry in entries}
            keys = [stream_key(shard), bytes_key(shard), *(state_key(shard, incarnation) for incarnation in durable)]
            sizes = [part for entry in entries for part in (entry.place.id, len(entry.payload))]
            await self._run(self._commit, keys, CONSUMER_GROUP, STATE_LIFETIME_S, *durable.values(), *sizes)

    async def keep_manifest(self, text: str) -> None:
        """Keeps what is about to be inserted; an empty text forgets it."""
        await self._run(self._manifest, [MANIFEST], text)

    async def manifest(self) -> Manifest | None:
        """The insert that was begun and not committed, if there is one."""
        text = await self._command("GET", MANIFEST)
        return Manifest.parse(text) if isinstance(text, bytes) else None

    async def claim(self, key: str, claimant: Claimant, *, lifetime_ms: int) -> bytes | None:
        """Takes or keeps a claim; returns None when it is the caller's, else what its holder shows.

        Args:
            key: The claim.
            claimant: The caller.
            lifetime_ms: After which the claim lapses.
        """
        answer = await self._run(self._claim, [key], claimant.id, claimant.shown, lifetime_ms, claimant.replaces)
        return cast("bytes | None", answer)

    async def release(self, key: str, *, holder: bytes) -> None:
        """Gives a claim back, if it is still the caller's."""
        await self._run(self._release, [key], holder)

    async def claim_holder(self, key: str) -> tuple[bytes, bytes] | None:
        """Id of a live claim's holder and what it shows; None where nobody holds it."""
        answer = await self._command("HMGET", key, "id", "shown")
        holder, shown = cast("list[bytes | None]", answer)
        return (holder, shown) if holder is not None and shown is not None else None

    async def mark_once(self, key: str) -> bool:
        """Whether the caller is the first to set this mark within the lifetime of a state."""
        return await self._command("SET", key, "1", "NX", "EX", STATE_LIFETIME_S) is not None

    async def _read(self, positions: list[str], *, count: int, block_ms: int | None) -> tuple[list[Entry], list[Place]]:
        wait: tuple[Arg, ...] = () if block_ms is None else ("BLOCK", block_ms)
        keys = [stream_key(shard) for shard in range(SHARDS)]
        answer = await self._command(
            "XREADGROUP", "GROUP", CONSUMER_GROUP, CONSUMER, "COUNT", count, *wait, "STREAMS", *keys, *positions
        )
        entries: list[Entry] = []
        gone: list[Place] = []
        streams = cast("list[tuple[bytes, list[tuple[bytes, Fields | None]]]]", answer or [])
        for key, rows in streams:
            shard = keys.index(key.decode())
            for entry_id, fields in rows:
                place = Place(shard, entry_id.decode())
                if fields:
                    entries.append(Entry.of(place, fields))
                else:
                    gone.append(place)
        return entries, gone

    async def _info(self) -> dict[str, str]:
        answer = cast("Mapping[str, object]", await self._command("INFO"))
        return {name: str(value) for name, value in answer.items()}

    async def _command(self, *args: Arg) -> object:
        async with self._mapped():
            return await self._client.execute_command(*args)

    async def _run(self, script: Script, keys: Sequence[str], *args: Arg) -> object:
        async with self._mapped():
            try:
                return await self._client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            except redis.exceptions.NoScriptError:  # nothing ran: the broker is new or was restarted
                return await self._client.execute_command("EVAL", script.source, len(keys), *keys, *args)

    @asynccontextmanager
    async def _mapped(self) -> AsyncGenerator[None]:
        try:
            yield
        except redis.exceptions.OutOfMemoryError as error:
            raise Busy(
                f"Redis at {self._address} is at maxmemory; is the writer running?", retry_after_ms=FULL_RETRY_MS
            ) from error
        except (TimeoutError, redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as error:
            raise BrokerUnavailable(
                f"Redis at {self._address} did not answer ({error}); is it running, and is RANKSCOPE_REDIS_URL right?"
            ) from error
        except redis.exceptions.RedisError as error:
            if str(error).startswith("MISCONF"):
                raise Busy(
                    f"Redis at {self._address} cannot write to its disk and takes nothing until it can: "
                    f"free space there, or see its log ({error})",
                    retry_after_ms=DISK_RETRY_MS,
                ) from error
            raise BrokerUnfit(f"Redis at {self._address} refused a command: {error}") from error
