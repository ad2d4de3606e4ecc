"""The broker's streams as the writer uses them: reading in order, the manifest, the commit.

Every write is one Lua script that may be repeated without harm, and that a full broker lets pass:
draining is what makes room.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import SecretStr

from rankscope_ingest.broker_keys import bytes_key, state_key, stream_key
from rankscope_ingest.buffer import STATE_LIFETIME_S
from rankscope_ingest.connection import TIMEOUT_S, Connection
from rankscope_ingest.entries import Entry, Group, Manifest, Place
from rankscope_ingest.scripts import Arg, Script
from rankscope_proto.identity import SHARDS

Fields = Mapping[bytes, bytes]
"""Fields of a stream entry."""

CONSUMER_GROUP = "writers"
CONSUMER = "writer"
MANIFEST = "rankscope:manifest"
WRITER_CLAIM = "rankscope:claim:writer"


class Streams:
    """Reading, manifest and commit.

    Args:
        url: redis://, rediss:// or unix://.
        read_timeout_s: Longest wait for an answer; a blocking read adds its own wait.
    """

    def __init__(self, url: SecretStr, *, read_timeout_s: float = TIMEOUT_S) -> None:
        self._connection = Connection(url, read_timeout_s=read_timeout_s)
        self._commit = Script("commit")
        self._manifest = Script("manifest")
        self._prepare = Script("prepare")

    async def close(self) -> None:
        """Closes every connection."""
        await self._connection.close()

    async def prepare_reading(self) -> None:
        """Makes the consumer group on every shard; safe to repeat."""
        for shard in range(SHARDS):
            await self._connection.run(self._prepare, [stream_key(shard)], CONSUMER_GROUP)

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
            answer = await self._connection.command("XRANGE", stream_key(place.shard), place.id, place.id)
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
            await self._connection.run(self._commit, keys, CONSUMER_GROUP, STATE_LIFETIME_S, *durable.values(), *sizes)

    async def keep_manifest(self, text: str) -> None:
        """Keeps what is about to be inserted; an empty text forgets it."""
        await self._connection.run(self._manifest, [MANIFEST], text)

    async def manifest(self) -> Manifest | None:
        """The insert that was begun and not committed, if there is one."""
        text = await self._connection.command("GET", MANIFEST)
        return Manifest.parse(text) if isinstance(text, bytes) else None

    async def _read(self, positions: list[str], *, count: int, block_ms: int | None) -> tuple[list[Entry], list[Place]]:
        wait: tuple[Arg, ...] = () if block_ms is None else ("BLOCK", block_ms)
        keys = [stream_key(shard) for shard in range(SHARDS)]
        answer = await self._connection.command(
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
