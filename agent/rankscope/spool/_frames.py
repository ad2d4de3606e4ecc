"""How sealed batches lie in a segment: bytes only, no file.

A segment is a header and frames, one behind the other. What follows the last frame is nothing, or zeros where the
file was made larger beforehand. A frame is either whole or not there: its checksum covers all that is behind it,
and is begun with the incarnation, so that bytes of another spool inside a payload are never taken for a frame.
"""

import struct
import zlib
from dataclasses import dataclass

from rankscope._export import SealedBatch
from rankscope_proto.v1.batch_pb2 import Header

VERSION = 1
SEGMENT_MAGIC = b"RKSG"
FRAME_MAGIC = b"RKFR"
MAX_PAYLOAD = 8 * 1024 * 1024
"""Twice the hard limit of a batch: a length above it is damage, whatever the checksum would say."""

BATCH = 1
"""The only kind of frame so far."""

IS_LAST = 1
"""Flag: the process sealed nothing behind this batch."""

_START = struct.Struct("<4sII")
_FACTS = struct.Struct("<QBBHIII16s")
_SEGMENT = struct.Struct("<4sII16sQ")
FRAME_HEAD = _START.size + _FACTS.size
SEGMENT_HEAD = _SEGMENT.size
"""Bytes before a payload, and before the first frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A sealed batch as it was read from a spool.

    Attributes:
        payload: The serialised `Batch`.
        seq: Its number.
        digest: BLAKE2b-128 of the payload, from when it was sealed.
        rows: Rows in all sections.
        week: Monday of the sealing time, in days since 1970-01-01.
        skipped: Batches directly before this one that the owner never appended; it declares them itself.
        is_last: Whether the owner sealed nothing behind it.
    """

    payload: bytes
    seq: int
    digest: bytes
    rows: int
    week: int
    skipped: int
    is_last: bool

    @property
    def header(self) -> Header:
        """The batch's header.

        Raises:
            google.protobuf.message.DecodeError: the payload is no batch.
        """
        return header_of(header_bytes(self.payload))


@dataclass(frozen=True, slots=True)
class FrameHead:
    """What stands before a frame's payload; true only once the checksum is found right."""

    length: int
    checksum: int
    facts: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole frame."""
        return FRAME_HEAD + self.length


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """What stands at the start of a segment.

    Attributes:
        incarnation: Whose batches these are.
        first_seq: Seq of the first frame; the segment is named by it.
    """

    incarnation: bytes
    first_seq: int


def frame_head(batch: SealedBatch, *, skipped: int, is_last: bool) -> bytes:
    """The bytes before the payload of a batch's frame."""
    flags = IS_LAST if is_last else 0
    facts = _FACTS.pack(batch.seq, BATCH, flags, 0, batch.rows, batch.week, skipped, batch.digest)
    checksum = zlib.crc32(batch.payload, zlib.crc32(facts, zlib.crc32(batch.incarnation)))
    return _START.pack(FRAME_MAGIC, len(batch.payload), checksum) + facts


def read_frame_head(data: bytes, offset: int = 0) -> FrameHead | None:
    """The head that begins at `offset`; None where none does, or not all of it is there."""
    if len(data) - offset < FRAME_HEAD:
        return None
    magic, length, checksum = _START.unpack_from(data, offset)
    if magic != FRAME_MAGIC or length > MAX_PAYLOAD:
        return None
    return FrameHead(length, checksum, data[offset + _START.size : offset + FRAME_HEAD])


def frame_of(head: FrameHead, payload: bytes, *, incarnation: bytes) -> Frame | None:
    """The frame of a head and its payload; None when the checksum says that it is not what was written."""
    if len(payload) != head.length:
        return None
    if zlib.crc32(payload, zlib.crc32(head.facts, zlib.crc32(incarnation))) != head.checksum:
        return None
    seq, kind, flags, _, rows, week, skipped, digest = _FACTS.unpack(head.facts)
    if kind != BATCH:
        return None
    return Frame(payload, seq, digest, rows, week, skipped, bool(flags & IS_LAST))


def segment_head(incarnation: bytes, first_seq: int) -> bytes:
    """The bytes at the start of a segment."""
    rest = _SEGMENT.pack(SEGMENT_MAGIC, 0, VERSION, incarnation, first_seq)[8:]
    return SEGMENT_MAGIC + zlib.crc32(rest).to_bytes(4, "little") + rest


def read_segment_head(data: bytes) -> SegmentHead | None:
    """The header at the start of `data`; None when it is damaged, cut or of another version."""
    if len(data) < SEGMENT_HEAD:
        return None
    magic, checksum, version, incarnation, first_seq = _SEGMENT.unpack_from(data)
    if magic != SEGMENT_MAGIC or version != VERSION or zlib.crc32(data[8:SEGMENT_HEAD]) != checksum:
        return None
    return SegmentHead(incarnation, first_seq)


def header_bytes(payload: bytes) -> bytes:
    """The serialised header of a payload, whose first field it is; empty when it is not.

    Cut out, not parsed: parsing 256 KiB takes a thousand times as long.
    """
    if not payload or payload[0] != _HEADER_TAG:
        return b""
    length, place = 0, 1
    for shift in range(0, 35, 7):
        if place >= len(payload):
            return b""
        length |= (payload[place] & 0x7F) << shift
        place += 1
        if payload[place - 1] < 0x80:
            return payload[place : place + length]
    return b""


_HEADER_TAG = 1 << 3 | 2
"""Field 1, length-delimited."""


def header_of(data: bytes) -> Header:
    """The header that `header_bytes` cut out.

    Raises:
        google.protobuf.message.DecodeError: these are not its bytes.
    """
    return Header.FromString(data)
