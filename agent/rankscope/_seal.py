"""Rows become a batch: sealed once, counted exactly, its bytes never touched again.

Promises, for every section and every batch: the header's `emitted` sum equals the rows stored up
to and including this batch plus the rows that gaps up to and including it declare lost here.
Sequence numbers start at 0; where batches found no room and were taken back, a gap names their numbers.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from rankscope._block import Block, Column
from rankscope._bounds import NAME, PART_ROWS, bounded, cut, parts, text_size
from rankscope._columns import Dictionary, block_of, check, fill
from rankscope._export import SealedBatch
from rankscope._kept_values import KeptValues, Sent
from rankscope._masks import Masks
from rankscope._metric_rows import MetricRows, metric_block, metric_size, names_size
from rankscope._span_columns import span_block, span_size
from rankscope._span_events import SpanEvent, event_block
from rankscope._version import __version__
from rankscope.privacy import Redactor
from rankscope_proto.columns import SCHEMA_VERSION, SECTION_BY_NAME, SECTIONS
from rankscope_proto.identity import payload_digest, week_of
from rankscope_proto.names import EventKind, GapCause, GapClass, Severity
from rankscope_proto.v1.batch_pb2 import Batch

if TYPE_CHECKING:
    from rankscope._clock import Clock
    from rankscope._identity import Identity
    from rankscope._ring import Item
    from rankscope._span import Span

    Part = Span | MetricRows | Block
    """What a batch is made of."""

SEAL_ROWS = 2_000
SEAL_BYTES = 256 * 1024
MAX_BYTES = 4 * 1024 * 1024
"""Limits of `wire.md`: small batches cost the ingest tier, and 4 MiB is the hard limit."""

SEAL_TEXT = 2 * 1024 * 1024
"""Characters of a batch's text, each written out wherever it is said: a dictionary hides from the payload
what the ingest tier and the store unfold (they bound it too)."""

HEADER_BYTES = 64 * 1024
"""More than a header takes, whose texts are bounded where the identity is made."""

_VALUE_BYTES = 10
"""More than any value of a column but text takes on the wire, map keys and lengths included."""


@dataclass(slots=True)
class _Loss:
    """Rows of one section that are lost for one cause, until their gap is stated."""

    rows: int
    start_ns: int
    end_ns: int
    detail: str


Seqs = tuple[int, int] | None
"""First and last seq of the batches that held lost rows; None: they were never sealed."""


class Sealer:
    """Collects finished items of one process and seals them.

    Args:
        identity: Who seals.
        clock: For the sealing time, and to date spans.
        masks: Takes the secrets out of their texts; default: a redactor's that was told nothing.
    """

    def __init__(self, identity: "Identity", *, clock: "Clock", masks: Masks | None = None) -> None:
        self._identity = identity
        self._clock = clock
        self._masks = masks or Masks(Redactor())
        self._seq = 0
        self._sealed: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._spans: list[Span] = []
        self._calls: list[MetricRows] = []
        self._blocks: dict[str, list[Block]] = {}
        self._losses: dict[tuple[str, GapCause, Seqs], _Loss] = {}
        self._sent = Sent()
        self.rows = 0
        self._size = self._text = 0

    @property
    def next_seq(self) -> int:
        """The number of the next batch."""
        return self._seq

    @property
    def is_full(self) -> bool:
        """Whether the batch should be sealed before anything is added."""
        return self.rows >= SEAL_ROWS or self._size >= SEAL_BYTES or self._text >= SEAL_TEXT

    def fits(self, item: "Part") -> bool:
        """Whether the batch surely stays below the hard limit with the item; else seal first."""
        return not isinstance(item, Block) or not self.rows or self._size + _block_size(item) < MAX_BYTES // 2

    def parts(self, item: "Item") -> "Iterable[Part]":
        """What to add for a finished item: it, or a large one in parts; a malformed block becomes a gap.

        Parts of kept values are made one at a time, as they are taken.
        """
        try:
            return self._parts(item)
        except Exception as error:  # noqa: BLE001  # a row that cannot be built is counted, whatever is wrong with it
            self._refuse(item.section, item.count, error=error)
            return ()

    def _parts(self, item: "Item") -> "Iterable[Part]":
        if isinstance(item, KeptValues):
            return (bounded(block) for block in self._sent.blocks(item))
        if isinstance(item, MetricRows):
            if not item.text_bytes and item.count <= PART_ROWS:
                return (item,)
            item = metric_block((item,), self._clock, masks=self._masks)
        if isinstance(item, SpanEvent):
            item = event_block(item, self._clock, masks=self._masks)
        if not isinstance(item, Block):
            return (item,)
        check(item)
        return parts(bounded(item))

    def add(self, item: "Part") -> None:
        """Add a span, a log call or a part of a block to the open batch; what has no size is refused, and counted."""
        try:
            self._lay(item)
        except Exception as error:  # noqa: BLE001  # likewise
            self._refuse(item.section, item.count, error=error)

    def _lay(self, item: "Part") -> None:
        if isinstance(item, MetricRows):
            self._size += metric_size(item)
            self._text += names_size(item)
            self._calls.append(item)
        elif isinstance(item, Block):
            if self._calls and item.section == MetricRows.section:
                self._lay_calls()
            self._size += _block_size(item)
            self._text += text_size(item)
            self._blocks.setdefault(item.section, []).append(item)
        else:
            size = span_size(item)
            self._size += size
            self._text += size
            self._spans.append(item)
        self.rows += item.count

    def _lay_calls(self) -> None:
        """Make the waiting log calls a block, so that a block that comes now lies behind them."""
        calls, self._calls = self._calls, []
        self._blocks.setdefault(MetricRows.section, []).append(metric_block(calls, self._clock, masks=self._masks))

    def add_lost(self, dropped: Mapping[str, int], *, cause: GapCause, detail: str = "", seqs: Seqs = None) -> None:
        """Count rows that were emitted and will never be stored; the next batch states them, in one gap a section.

        Args:
            dropped: Rows by section.
            cause: Why.
            detail: In words; of several losses in one gap, the first's.
            seqs: The batches that held them, if any.
        """
        now_ns = self._clock.wall_ns()
        if dropped.get(KeptValues.section):
            self._sent.forget()
        for section, rows in dropped.items():
            self._lost[section] += rows
            known = section if section in SECTION_BY_NAME else ""
            loss = self._losses.setdefault((known, cause, seqs), _Loss(0, now_ns, now_ns, cut(detail, NAME)))
            loss.rows += rows
            loss.end_ns = now_ns

    def add_left_out(self, counts: Mapping[GapCause, int], *, start_ns: int, detail: str = "") -> None:
        """State spans that sampling or a cap left out, in one gap a cause.

        Args:
            counts: How many, by cause.
            start_ns: Wall time from which on they were counted.
            detail: In words.
        """
        for cause, rows in counts.items():
            columns: dict[str, Column] = {
                "class": (GapClass.NOT_CAPTURED.code,),
                "cause": (cause.value,),
                "data_kind": ("spans",),
                "count": (rows,),
                "start": (start_ns,),
                "end": (self._clock.wall_ns(),),
                "detail": (detail,),
            }
            self.add(Block("gaps", 1, columns))

    def take_back(self, batches: Sequence[SealedBatch], *, kept: Collection[str], cause: GapCause) -> None:
        """Undo batches that nobody took, the last ones sealed; their numbers are not used again.

        Args:
            batches: At least one, in order of seq.
            kept: Sections whose rows go into the next batch instead; those of the others are lost.
            cause: Why they are lost.
        """
        lost: Counter[str] = Counter()
        for batch in batches:
            self._sealed.subtract(batch.counts)
            message = Batch.FromString(batch.payload)
            for section, rows in batch.counts.items():
                if section in kept:
                    self.add(block_of(message, section))
                else:
                    lost[section] += rows
        seqs = batches[0].seq, batches[-1].seq
        # A hole in the numbers always has its gap, also where all rows of the batch were kept.
        self.add_lost(lost or {"gaps": 0}, cause=cause, seqs=seqs)

    def _state_gaps(self) -> None:
        losses, self._losses = self._losses, {}
        for (section, cause, seqs), loss in losses.items():
            columns: dict[str, Column] = {
                "class": (GapClass.LOST.code,),
                "cause": (cause.value,),
                "data_kind": (section,),
                "count": (loss.rows,),
                "start": (loss.start_ns,),
                "end": (loss.end_ns,),
                "detail": (loss.detail,),
            }
            if seqs is not None:
                columns["seq_from"], columns["seq_to"] = (seqs[0],), (seqs[1],)
            self.add(Block("gaps", 1, columns))

    def emitted(self, section: str) -> int:
        """Rows of a section emitted so far: sealed, waiting in the open batch, or lost."""
        waiting = sum(block.count for block in self._blocks.get(section, ()))
        if section == MetricRows.section:
            waiting += sum(rows.count for rows in self._calls)
        if section == "spans":
            waiting += len(self._spans)
        if section == "gaps":
            waiting += len(self._losses)
        return self._sealed[section] + self._lost[section] + waiting

    def end_of_stream(self) -> Block:
        """A stream's last row: how many rows of each section were emitted, with itself."""
        emitted = {section.name: self.emitted(section.name) for section in SECTIONS}
        emitted["events"] += 1
        columns: dict[str, Column] = {
            "time": (self._clock.wall_ns(),),
            "kind": (EventKind.END_OF_STREAM.value,),
            "name": ("end of stream",),
            "severity": (Severity.INFO.code,),
            "payload": (json.dumps({"emitted": emitted}),),
        }
        return Block("events", 1, columns)

    def lost_rows(self) -> int:
        """Rows emitted so far that were lost before sealing."""
        return self._lost.total()

    def seal(self) -> SealedBatch | None:
        """Seal the open batch; None when nothing was added."""
        if not self.rows and not self._losses:
            return None
        batch, counts = self._built()
        if batch.ByteSize() > MAX_BYTES - HEADER_BYTES:
            self._drop_oversize()
            batch, counts = self._built()
        return self._close(batch, counts)

    def _close(self, batch: Batch, counts: Counter[str]) -> SealedBatch:
        self._sealed.update(counts)
        self._clear()
        week = self._write_header(batch)
        payload = batch.SerializeToString()
        sealed = SealedBatch(
            payload,
            self._identity.incarnation,
            self._seq,
            payload_digest(payload),
            counts.total(),
            week,
            counts,
        )
        self._seq += 1
        return sealed

    def _drop_oversize(self) -> None:
        """Take out the largest items until the others surely fit, and state their rows as lost."""
        sized = sorted(((self._size_alone(item), item) for item in self._items()), key=itemgetter(0))
        self._clear()
        room = MAX_BYTES - HEADER_BYTES
        for size, item in sized:
            room -= size
            if room >= 0:
                self.add(item)
            else:
                self.add_lost({item.section: item.count}, cause=GapCause.OVERSIZE)

    def _size_alone(self, item: "Part") -> int:
        batch, words = Batch(), Dictionary()
        block = self._as_block(item)
        fill(getattr(batch, block.section), [block], words=words)
        batch.strings.extend(words.strings)
        return batch.ByteSize()

    def _as_block(self, item: "Part") -> Block:
        if isinstance(item, Block):
            return item
        if isinstance(item, MetricRows):
            return metric_block((item,), self._clock, masks=self._masks)
        return self._span_block((item,))

    def _span_block(self, spans: "Sequence[Span]") -> Block:
        return span_block(spans, self._clock, masks=self._masks, rank=self._identity.rank)

    def _items(self) -> "list[Part]":
        return [*self._spans, *self._calls, *(block for blocks in self._blocks.values() for block in blocks)]

    def _built(self) -> tuple[Batch, Counter[str]]:
        try:
            return self._build()
        except Exception:  # noqa: BLE001  # found out item by item, and counted there
            self._drop_unbuildable()
            return self._build()

    def _build(self) -> tuple[Batch, Counter[str]]:
        self._state_gaps()
        batch, words = Batch(), Dictionary()
        counts: Counter[str] = Counter()
        blocks = dict(self._blocks)
        if self._calls:
            calls = metric_block(self._calls, self._clock, masks=self._masks)
            blocks[calls.section] = [*blocks.get(calls.section, ()), calls]
        if self._spans:
            blocks["spans"] = [*blocks.get("spans", ()), self._span_block(self._spans)]
        for section, laid in blocks.items():
            fill(getattr(batch, section), laid, words=words)
            counts[section] = sum(block.count for block in laid)
        batch.strings.extend(words.strings)
        return batch, counts

    def _drop_unbuildable(self) -> None:
        """Take out every item that a message of its own refuses, and state its rows as lost."""
        items = self._items()
        self._clear()
        for item in items:
            try:
                self._size_alone(item)
            except Exception as error:  # noqa: BLE001  # a row that cannot be built is counted, whatever is wrong with it
                self._refuse(item.section, item.count, error=error)
            else:
                self.add(item)

    def _refuse(self, section: str, rows: int, *, error: Exception) -> None:
        self.add_lost({section: rows}, cause=GapCause.QUARANTINED, detail=str(error))

    def _write_header(self, batch: Batch) -> int:
        identity, header, mono_ns = self._identity, batch.header, self._clock.mono_ns()
        now_ns = self._clock.wall_at(mono_ns)  # of one reading: what is between the two clocks is exact
        week = week_of(now_ns, now_ns=now_ns)
        for name in ("project", "run_id", "launch_id", "incarnation", "rank", "local_rank", "world_size"):
            setattr(header, name, getattr(identity, name))
        for name in ("worker_index", "parent_rank", "node", "pid", "boot_id"):
            setattr(header, name, getattr(identity, name))
        header.schema_version = SCHEMA_VERSION
        header.process_role = identity.process_role.code
        header.seq = self._seq
        header.sealed = now_ns
        header.sealed_mono = mono_ns
        header.week = week
        header.sdk_version = __version__
        header.mesh_axis.extend(axis for axis, _ in identity.mesh)
        header.mesh_coordinate.extend(coordinate for _, coordinate in identity.mesh)
        for section in SECTIONS:
            setattr(header, f"emitted_{section.name}", self._sealed[section.name] + self._lost[section.name])
        return week

    def _clear(self) -> None:
        self._spans, self._calls, self._blocks = [], [], {}
        self.rows = self._size = self._text = 0


def _block_size(block: Block) -> int:
    """An upper bound of a block's bytes on the wire, but for text said twice."""
    size = 0
    for column in block.columns.values():
        size += _VALUE_BYTES * len(column)
        if column and isinstance(column[0], str):
            size += sum(map(len, set(cast("Sequence[str]", column))))
        elif column and isinstance(column[0], bytes):
            size += sum(map(len, cast("Sequence[bytes]", column)))
    return size
