"""What the broker holds and what one insert is made of: pure values, no I/O.

A group is an ordered list of entries; its body and its token follow from that order alone, so the
same entries give the same bytes and the same token for ever (`delivery.md`: a token that covers
other data is silently dropped, and data under another token is doubled).
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

MAX_ENTRIES = 1_000
"""Most batches of one insert: bounds the manifest and the commit scripts whatever the batches' size."""

MAX_EXPANDED_BYTES = 128 * 2**20
"""Most bytes of one insert's rows, each with its own text: with 120 MiB of it chDB grew by 520 MiB."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry is: its shard (0-based) and its id in the shard's stream."""

    shard: int
    id: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One accepted batch as the broker holds it.

    Attributes:
        place: Where it is.
        payload: The sealed bytes, with the receive time appended.
        incarnation: 16 bytes.
        seq: Number of the batch in its incarnation.
        digest: 16 bytes, of the sealed bytes.
        rows: Rows in all sections.
        expanded: Bytes that the rows take once each carries its own text; 0: about the payload's.
        again: Its rows may be in the store already, whole or in part.
        week: Monday of the sealing time, days since 1970-01-01.
        stands_for: The entry that this one states as a gap, where the store cannot parse that.
    """

    place: Place
    payload: bytes
    incarnation: bytes
    seq: int
    digest: bytes
    rows: int
    expanded: int = 0
    again: bool = False
    week: int = 0
    stands_for: "Entry | None" = None

    @classmethod
    def of(cls, place: Place, fields: Mapping[bytes, bytes]) -> Self:
        """The entry in a stream's fields."""
        return cls(
            place,
            fields[b"payload"],
            fields[b"incarnation"],
            int(fields[b"seq"]),
            fields[b"digest"],
            int(fields[b"rows"]),
            int(fields.get(b"expanded", 0)),
            fields.get(b"again") == b"1",
            int(fields.get(b"week", 0)),
        )

    @property
    def key(self) -> tuple[bytes, int]:
        """What its rows carry: incarnation and seq."""
        return self.incarnation, self.seq

    @property
    def accepted(self) -> "Entry":
        """The entry that the sender waits for: this one, or what it stands for."""
        return self.stands_for or self

    @property
    def weight(self) -> int:
        """About as many bytes as the store holds for its rows."""
        return self.expanded or len(self.payload)


@dataclass(frozen=True, slots=True)
class Group:
    """The entries of one insert, in the order in which they are inserted."""

    entries: tuple[Entry, ...]

    @property
    def rows(self) -> int:
        """Rows of all entries."""
        return sum(entry.rows for entry in self.entries)

    @property
    def token(self) -> str:
        """The insert's deduplication token: a digest over the ordered batches."""
        digest = hashlib.blake2b(digest_size=16)
        for entry in self.entries:
            digest.update(entry.incarnation + entry.seq.to_bytes(8, "big") + entry.digest)
        return digest.hexdigest()

    def body(self) -> bytes:
        """The insert's body: each payload behind its length (a protobuf varint)."""
        parts: list[bytes] = []
        for entry in self.entries:
            parts += (varint(len(entry.payload)), entry.payload)
        return b"".join(parts)

    def by_shard(self) -> dict[int, list[Entry]]:
        """The entries of each shard, in order."""
        shards: dict[int, list[Entry]] = {}
        for entry in self.entries:
            shards.setdefault(entry.place.shard, []).append(entry)
        return shards

    def manifest(self, settings: Mapping[str, str | int]) -> str:
        """What must be known to repeat this insert: its token, its settings and its entries' places, in order.

        A place has a third part, 1, where the entry is stated as a gap instead.
        """
        places = [[entry.place.shard, entry.place.id, *([1] if entry.stands_for else [])] for entry in self.entries]
        content = {"token": self.token, "settings": settings, "places": places}
        return json.dumps(content, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Manifest:
    """An insert that was begun.

    Attributes:
        token: Its token.
        settings: Its settings.
        places: Where its entries are, in order.
        set_aside: Those of them that are stated as gaps.
    """

    token: str
    settings: Mapping[str, str | int]
    places: tuple[Place, ...]
    set_aside: frozenset[Place]

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """The manifest that `Group.manifest` wrote."""
        content = json.loads(text)
        places = tuple(Place(part[0], part[1]) for part in content["places"])
        aside = frozenset(Place(part[0], part[1]) for part in content["places"] if len(part) > 2)
        return cls(content["token"], content["settings"], places, aside)


def take(entries: Iterable[Entry], *, rows: int, size: int) -> Group:
    """The longest group from the front of `entries` within the limits; at least one entry.

    Args:
        entries: In the order in which they were read; each shard's in stream order.
        rows: Most rows.
        size: Most payload bytes.

    Returns:
        The entries taken, brought into order of shard: a prefix of every shard.
    """
    return Group(tuple(sorted(_within(entries, rows=rows, size=size), key=lambda entry: entry.place.shard)))


def _within(entries: Iterable[Entry], *, rows: int, size: int) -> Iterator[Entry]:
    room = MAX_EXPANDED_BYTES
    for count, entry in enumerate(entries):
        rows -= entry.rows
        size -= len(entry.payload)
        room -= entry.weight
        if count and (min(rows, size, room) < 0 or count == MAX_ENTRIES):
            return
        yield entry


def varint(number: int) -> bytes:
    """A non-negative number as a protobuf varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
