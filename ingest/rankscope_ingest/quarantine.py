"""Batches that the store cannot parse: found among their neighbours, and stated as gaps in their place.

An insert is refused whole for one bad batch. Which it is tells `landing_probe`, a twin of `landing`
without views: only what that refuses too is bad, and anything else is no fault of the bytes. In the
place of a bad batch its gap is inserted, made from nothing but the batch itself: whoever repeats
the insert makes the same bytes.
"""

import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from google.protobuf.message import DecodeError

from rankscope_ingest.entries import Entry, Group, varint
from rankscope_ingest.errors import StoreRefused, StoreUncertain
from rankscope_proto.columns import GAPS, SCHEMA_VERSION, SECTIONS
from rankscope_proto.identity import payload_digest, uuid7, week_of
from rankscope_proto.names import GapCause, GapClass, ProcessRole
from rankscope_proto.v1.batch_pb2 import Batch

logger = logging.getLogger(__name__)

BRAKE_WINDOW_S = 300.0
FEW = 100
"""So many are set aside in a window whatever their share."""
BAD_SHARE = 0.01
_STATED = ("count", "seq_from", "seq_to", "incarnation_hi", "incarnation_lo")
"""The optional columns that a statement has."""
_SOUND = varint(0)
"""A batch without any field, which every version of the store takes."""


class Probe(Protocol):
    """The store's twin of `landing` without views."""

    async def probe(self, body: bytes) -> None:
        """Parses payloads and keeps nothing.

        Raises:
            StoreRefused: It cannot parse them.
            StoreUncertain: It could not try.
        """
        ...


class Brake:
    """Tells a few bad batches from a store that takes none: setting all aside would empty the streams for nothing.

    Args:
        monotonic: A clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._moved: deque[tuple[float, int, int]] = deque()

    def note(self, *, stored: int = 0, bad: int = 0) -> None:
        """Counts batches that were stored, and that were set aside."""
        self._moved.append((self._monotonic(), stored, bad))

    def check(self, bad: int) -> None:
        """Lets that many more bad ones pass.

        Raises:
            StoreUncertain: Too many were in the last five minutes.
        """
        since = self._monotonic() - BRAKE_WINDOW_S
        while self._moved and self._moved[0][0] < since:
            self._moved.popleft()
        aside = bad + sum(counted for _, _, counted in self._moved)
        stored = sum(counted for _, counted, _ in self._moved)
        if aside > max(FEW, (stored + aside) * BAD_SHARE):
            raise StoreUncertain(
                f"the store cannot parse {aside} of the {stored + aside} batches of the last five minutes; "
                "nothing more is set aside: is `rankscope migrate` of this version applied, and do the senders fit it?"
            )


async def find_bad(probe: Probe, entries: Sequence[Entry]) -> list[Entry]:
    """Those entries that the store cannot parse, in order; empty where it parses all.

    Raises:
        StoreUncertain: The store did not answer, or parses nothing at all: then the fault is its own.
    """
    bad = await _refused(probe, entries)
    if bad and not await _takes(probe, _SOUND):
        raise StoreUncertain("landing_probe refuses even an empty batch: run `rankscope migrate` of this version")
    return bad


async def _refused(probe: Probe, entries: Sequence[Entry]) -> list[Entry]:
    if not entries or await _takes(probe, Group(tuple(entries)).body()):
        return []
    if len(entries) == 1:
        return list(entries)
    half = len(entries) // 2
    return await _refused(probe, entries[:half]) + await _refused(probe, entries[half:])


async def _takes(probe: Probe, body: bytes) -> bool:
    try:
        await probe.probe(body)
    except StoreRefused:
        return False
    return True


def gap_in_place_of(entry: Entry) -> Entry | None:
    """The gap of a batch that cannot be stored, as an entry in its place; None where nothing is known of its run.

    Args:
        entry: The batch.

    Returns:
        A batch of one statement under an incarnation of its own, the same whenever it is made.
    """
    try:
        lost = Batch.FromString(entry.payload)
    except DecodeError:
        return None
    payload = _statement(lost, entry).SerializeToString()
    digest = payload_digest(payload)
    return replace(
        entry,
        payload=payload,
        incarnation=_incarnation(lost, entry),
        seq=0,
        digest=digest,
        rows=len(_rows(lost)),
        expanded=0,
        again=True,
        stands_for=entry,
    )


def _rows(lost: Batch) -> dict[str, int]:
    """Rows of each section that has any, and those that the batch itself stated as lost."""
    counts = {section.name: len(getattr(getattr(lost, section.name), section.key)) for section in SECTIONS}
    for section, count in _stated(lost):
        counts[section] = counts.get(section, 0) + count
    return {name: count for name, count in counts.items() if count}


def _stated(lost: Batch) -> Iterator[tuple[str, int]]:
    """Sections and counts of the batch's own statements of rows lost: the sums in the headers include them."""
    gaps, words = lost.gaps, lost.strings
    for code, kind, count in zip(getattr(gaps, "class"), gaps.data_kind, gaps.count, strict=False):
        if code == GapClass.LOST.code and kind < len(words):
            yield words[kind], count


def _incarnation(lost: Batch, entry: Entry) -> bytes:
    key = entry.incarnation + entry.seq.to_bytes(8, "big") + entry.digest
    entropy = hashlib.blake2b(key, digest_size=10, person=b"quarantined").digest()
    return uuid7(_sealed(lost), entropy)


def _sealed(lost: Batch) -> int:
    """The sealing time, or the epoch where it is none that an incarnation could carry (48 bits of ms)."""
    return lost.header.sealed if 0 <= lost.header.sealed < 2**47 * 1_000_000 else 0


def _statement(lost: Batch, entry: Entry) -> Batch:
    rows = _rows(lost)
    message = Batch(strings=["", GapCause.QUARANTINED.value, "the store could not parse the batch", *rows])
    _head(message, lost, incarnation=_incarnation(lost, entry))
    message.header.emitted_gaps = len(rows)
    message.received = _sealed(lost)
    gaps = message.gaps
    present = sum(1 << bit for name in _STATED if (bit := GAPS.field(name).optional) is not None)
    for position, count in enumerate(rows.values()):
        getattr(gaps, "class").append(GapClass.LOST.code)
        gaps.cause.append(1)
        gaps.data_kind.append(3 + position)
        gaps.count.append(count)
        gaps.seq_from.append(entry.seq)
        gaps.seq_to.append(entry.seq)
        gaps.start.append(_sealed(lost))
        gaps.detail.append(2)
        gaps.incarnation_hi.append(int.from_bytes(entry.incarnation[:8], "big"))
        gaps.incarnation_lo.append(int.from_bytes(entry.incarnation[8:16], "big"))
        gaps.present.append(present)
    return message


def _head(message: Batch, lost: Batch, *, incarnation: bytes) -> None:
    header, of_lost = message.header, lost.header
    header.schema_version = SCHEMA_VERSION
    header.project, header.run_id, header.node = of_lost.project, of_lost.run_id, of_lost.node
    header.launch_id = of_lost.launch_id if len(of_lost.launch_id) == 16 else bytes(16)
    header.process_role = ProcessRole.SERVER.code
    header.rank, header.local_rank, header.world_size = of_lost.rank, of_lost.local_rank, of_lost.world_size
    header.worker_index, header.parent_rank = of_lost.worker_index, of_lost.parent_rank
    header.incarnation = incarnation
    header.sealed = _sealed(lost)
    header.week = week_of(_sealed(lost), now_ns=_sealed(lost))
