"""Values of a tensor on their way to a batch: rows of at most a MiB, made while sealing.

Training hands over a copy and nothing else: hashing and cutting are the sealing thread's. Content that this
process has sent is not sent again, but named. Promises: the bytes are never looked into, masked or changed;
the memory is free as soon as the rows are sealed, or lost.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import ClassVar

from rankscope._block import Block, Column
from rankscope_proto.sections_probe import CHUNK_BYTES

DIGEST_BYTES = 16

MOST_REMEMBERED = 16_384
"""Digests that a process remembers of what it has sent, the latest: 2 MiB."""


class Content:
    """Bytes that do not change any more.

    Args:
        data: The bytes.
        owner: What the memory belongs to, if not to `data`.
    """

    def __init__(self, data: memoryview, owner: object = None) -> None:
        self.data = data
        self._owner = owner
        self._digest = b""

    @property
    def digest(self) -> bytes:
        """BLAKE2b-128 of the bytes; a second for each GB when it is first asked for, without holding the GIL."""
        if not self._digest:
            self._digest = hashlib.blake2b(self.data, digest_size=DIGEST_BYTES).digest()
        return self._digest


class KeptValues:
    """The kept values of one tensor, as an item of the ring.

    Args:
        columns: The row's columns but those of digest, size and chunks; lists are flat.
        content: The values, little-endian.

    Attributes:
        section: Name of their section.
        count: Rows that they take at most.
        text_bytes: 0: whoever hands values over bounds what waits of them.
    """

    __slots__ = ("__weakref__", "columns", "content", "count")

    section: ClassVar[str] = "captures"
    text_bytes: ClassVar[int] = 0

    def __init__(self, columns: Mapping[str, Column], content: Content) -> None:
        self.columns = columns
        self.content = content
        self.count = max(1, -(-len(content.data) // CHUNK_BYTES))


class Sent:
    """What a process has sent of kept values.

    A row that names earlier rows of the same content is only as good as they are: what is lost is forgotten.
    """

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def forget(self) -> None:
        """Rows of values were lost: send everything again that comes again."""
        self._digests.clear()

    def blocks(self, kept: KeptValues) -> Iterator[Block]:
        """A row for each chunk, or one that names the rows that have the same content, one at a time."""
        digest = kept.content.digest
        if digest in self._digests:
            self._digests.move_to_end(digest)
            return iter((_row(kept, chunk=0, chunks=0),))
        self._digests[digest] = None
        if len(self._digests) > MOST_REMEMBERED:
            self._digests.popitem(last=False)
        return (_row(kept, chunk=chunk, chunks=kept.count) for chunk in range(kept.count))


def _row(kept: KeptValues, *, chunk: int, chunks: int) -> Block:
    data, digest = kept.content.data, kept.content.digest
    start = chunk * CHUNK_BYTES
    columns: dict[str, Column] = {
        **kept.columns,
        "digest_hi": (int.from_bytes(digest[:8], "big"),),
        "digest_lo": (int.from_bytes(digest[8:], "big"),),
        "bytes": (len(data),),
        "chunk": (chunk,),
        "chunks": (chunks,),
        "data": (bytes(data[start : start + CHUNK_BYTES]) if chunks else b"",),
    }
    return Block(kept.section, 1, columns)
