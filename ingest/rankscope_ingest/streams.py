"""The broker's streams as the writer uses them: leases, reading in order, the manifest, the commit.

Every write is one Lua script that may be repeated without harm, and that a full broker lets pass:
draining is what makes room. Reading has no effect on the broker: what is in a stream is not
committed, whoever read it. (A consumer group would hand entries to a writer that was frozen and
has lost its shards, where its successor does not look for them.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import SecretStr

from rankscope_ingest import broker_keys as keys
from rankscope_ingest.buffer import STATE_LIFETIME_S
from rankscope_ingest.connection import TIMEOUT_S, Connection
from rankscope_ingest.entries import Entry, Group, Manifest, Place
from rankscope_ingest.errors import LeaseLost
from rankscope_ingest.scripts import Arg, Script
from rankscope_proto.identity import SHARDS

Fields = Mapping[bytes, bytes]
"""Fields of a stream entry."""

_Rows = list[tuple[bytes, Fields]]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who asks for leases.

    Attributes:
        id: Its id, without blanks.
        shown: What others are shown of it.
    """

    id: str
    shown: bytes


@dataclass(frozen=True, slots=True)
class ShardLease:
    """What was found of one shard's lease.

    Attributes:
        fence: Number of this taking; 0: it is not the caller's.
        how: `kept`, `clean` (taken; nothing of it is begun), `taken`, or `other`.
        shown: What another holder shows; empty where nobody holds it.
    """

    fence: int
    how: str
    shown: bytes


@dataclass(frozen=True, slots=True)
class Leases:
    """What became of a call for leases.

    Attributes:
        writers: Living writers, the caller included.
        shards: Each shard's lease.
    """

    writers: int
    shards: tuple[ShardLease, ...]


class Streams:
    """The streams of one broker.

    Args:
        url: redis://, rediss:// or unix://.
        read_timeout_s: Longest wait for an answer; a blocking read adds its own wait.
    """

    def __init__(self, url: SecretStr, *, read_timeout_s: float = TIMEOUT_S) -> None:
        self._connection = Connection(url, read_timeout_s=read_timeout_s)
        self._commit = Script("commit")
        self._forget = Script("forget")
        self._hand_over = Script("handover")
        self._leases = Script("leases")
        self._manifest = Script("manifest")

    async def close(self) -> None:
        """Closes every connection."""
        await self._connection.close()

    @property
    def links(self) -> int:
        """Connections opened so far: where it grew, another broker may answer than before."""
        return self._connection.links

    async def broker(self) -> str:
        """What identifies the broker's process and its history: another one may have lost its newest part."""
        facts = await self._connection.info()
        return f"{facts['run_id']}:{facts.get('master_replid', '')}"

    async def lease(
        self, writer: Writer, *, lifetime_ms: int, broker: str, dead: Sequence[str] = (), takes: bool = True
    ) -> Leases:
        """Renews the caller's leases and takes free shards up to its share; safe to repeat.

        Args:
            writer: The caller.
            lifetime_ms: After which a lease lapses.
            broker: As `broker` gives it.
            dead: Ids of writers known to be dead.
            takes: Whether to take any; a writer that does not is no longer counted among the living.
        """
        shards = [key for shard in range(SHARDS) for key in (keys.lease_key(shard), keys.handed_key(shard))]
        names = f" {' '.join(dead)} "
        arguments = (writer.id, writer.shown, lifetime_ms, broker, names, int(takes))
        answer = await self._connection.run(self._leases, [keys.FENCE, keys.WRITERS, *shards], *arguments)
        writers, *found = cast("list[object]", answer)
        leases = cast("list[tuple[int, bytes, bytes]]", found)
        return Leases(cast("int", writers), tuple(ShardLease(fence, how.decode(), text) for fence, how, text in leases))

    async def hand_over(self, writer: str, shard: int, *, fence: int, broker: str) -> None:
        """Gives a shard back.

        Args:
            writer: The caller's id.
            shard: 0-based.
            fence: Of its lease.
            broker: As `broker` gives it, where nothing of the shard is begun; else empty.
        """
        shard_keys = [keys.lease_key(shard), keys.handed_key(shard)]
        await self._connection.run(self._hand_over, shard_keys, writer, fence, broker, STATE_LIFETIME_S)

    async def last_id(self, shard: int) -> str:
        """Id of a shard's newest entry; `0-0` where it has none."""
        answer = await self._connection.command("XREVRANGE", keys.stream_key(shard), "+", "-", "COUNT", 1)
        rows = cast("_Rows", answer)
        return rows[0][0].decode() if rows else "0-0"

    async def read(self, after: Mapping[int, str], *, count: int, block_ms: int) -> list[Entry]:
        """Entries of shards, each shard's in stream order; empty after `block_ms` without any.

        Args:
            after: For each shard to read the id behind which to go on.
            count: Most entries of one shard.
            block_ms: Longest wait for the first entry, above 0.
        """
        shards = {keys.stream_key(shard).encode(): shard for shard in after}
        wanted: tuple[Arg, ...] = (*shards, *after.values())
        answer = await self._connection.command("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", *wanted)
        streams = cast("list[tuple[bytes, _Rows]]", answer or [])
        return [
            Entry.of(Place(shards[key], entry_id.decode()), fields)
            for key, rows in streams
            for entry_id, fields in rows
        ]

    async def fetch(self, places: Sequence[Place]) -> list[Entry | None]:
        """The entries at those places, in that order; None where there is none."""
        found: list[Entry | None] = []
        for place in places:
            answer = await self._connection.command("XRANGE", keys.stream_key(place.shard), place.id, place.id)
            rows = cast("_Rows", answer)
            found.append(Entry.of(place, rows[0][1]) if rows else None)
        return found

    async def keep_manifest(
        self, writer: str, group: Group, *, fences: Mapping[int, int], settings: Mapping[str, str | int]
    ) -> None:
        """Keeps what is about to be inserted.

        Args:
            writer: The caller's id.
            group: What is inserted.
            fences: Of the leases of its shards.
            settings: Of the insert.

        Raises:
            LeaseLost: Shards of the group are not the caller's; nothing is kept.
        """
        shards = sorted(group.by_shard())
        pairs = [key for shard in shards for key in (keys.lease_key(shard), keys.begun_key(shard))]
        begun = f"{writer} {group.token}"
        arguments = (group.manifest(settings), STATE_LIFETIME_S, writer, begun, *(fences.get(s, 0) for s in shards))
        answer = await self._connection.run(self._manifest, [keys.manifest_key(writer), *pairs], *arguments)
        if lost := [shards[position - 1] for position in cast("list[int]", answer)]:
            raise LeaseLost(lost)

    async def manifest(self, shard: int) -> tuple[str, Manifest] | None:
        """The insert begun with entries of a shard and not committed there, with its writer; None: there is none."""
        begun = await self._connection.command("GET", keys.begun_key(shard))
        if not isinstance(begun, bytes):
            return None
        writer, _, token = begun.decode().partition(" ")
        text = await self._connection.command("GET", keys.manifest_key(writer))
        manifest = Manifest.parse(text) if isinstance(text, bytes) else None
        return (writer, manifest) if manifest and manifest.token == token else None

    async def commit(self, writer: str, shard: int, *, entries: Sequence[Entry], fence: int) -> int:
        """Forgets durable entries of a shard and moves their senders' durable watermarks; safe to repeat.

        Args:
            writer: The caller's id.
            shard: 0-based.
            entries: Each that was accepted, in stream order.
            fence: Of its lease.

        Returns:
            Incarnations that were set back, because entries before these had vanished from the stream.

        Raises:
            LeaseLost: The shard is not the caller's; nothing was forgotten.
        """
        states = {entry.incarnation: number for number, entry in enumerate(entries)}
        positions = {incarnation: number for number, incarnation in enumerate(states, 1)}
        own = [keys.stream_key(shard), keys.bytes_key(shard), keys.lease_key(shard), keys.begun_key(shard)]
        facts = [
            part
            for entry in entries
            for part in (entry.place.id, len(entry.payload), positions[entry.incarnation], entry.seq)
        ]
        names = [keys.state_key(shard, incarnation) for incarnation in positions]
        answer = await self._connection.run(self._commit, [*own, *names], writer, fence, STATE_LIFETIME_S, *facts)
        is_held, _, set_back = cast("list[int]", answer)
        if not is_held:
            raise LeaseLost([shard])
        return set_back

    async def forget(self, writer: str, manifest: Manifest | Group) -> None:
        """Forgets a manifest all of whose shards are committed."""
        places = manifest.places if isinstance(manifest, Manifest) else [entry.place for entry in manifest.entries]
        begun = [keys.begun_key(shard) for shard in sorted({place.shard for place in places})]
        await self._connection.run(
            self._forget, [keys.manifest_key(writer), *begun], manifest.token, f"{writer} {manifest.token}"
        )
