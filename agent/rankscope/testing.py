"""What tests need of the SDK: an exporter that keeps batches, a clock and ids that count, spans to ask about.

from rankscope import Run
from rankscope.testing import CountingIds, ManualClock, MemoryExporter

exporter = MemoryExporter()
with Run(exporter, clock=ManualClock(), ids=CountingIds()) as run, run.trace("answer"), run.span("search", kind="tool"):
    ...
exporter.spans().assert_tree('''
    answer
      search
''')
assert exporter.spans().one("search").kind == "tool"
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from rankscope._export import Exporter, Obstacle, SealedBatch, Wait
from rankscope._recorded import RecordedSpan, RecordedSpans
from rankscope_proto.columns import SECTION_BY_NAME
from rankscope_proto.declaration import Field, Section, Wire
from rankscope_proto.v1.batch_pb2 import Batch, Header

__all__ = ["CountingIds", "ManualClock", "MemoryExporter", "RecordedSpan", "RecordedSpans", "rows_of"]


class ManualClock:
    """A clock that moves `tick_ns` each time it is read, and as far as `advance` says.

    Args:
        wall_ns: Wall time of monotonic time 0, ns since the epoch.
        tick_ns: How far a reading moves it.
    """

    def __init__(self, wall_ns: int = 1_750_000_000_000_000_000, *, tick_ns: int = 0) -> None:
        self._epoch_ns = wall_ns
        self._now_ns = 1
        self._tick_ns = tick_ns

    def mono_ns(self) -> int:
        """Monotonic time in ns."""
        self._now_ns += self._tick_ns
        return self._now_ns

    def wall_at(self, mono_ns: int) -> int:
        """The wall time of a monotonic time."""
        return self._epoch_ns + mono_ns

    def wall_ns(self) -> int:
        """The wall time now."""
        return self.wall_at(self._now_ns)

    def advance(self, ns: int) -> None:
        """Let `ns` pass."""
        self._now_ns += ns


class CountingIds:
    """Ids 1, 2, 3, … for spans and for traces, entropy of zeros."""

    def __init__(self) -> None:
        self._spans = 0
        self._traces = 0

    def span_id(self) -> int:
        """The next span id."""
        self._spans += 1
        return self._spans

    def trace_id(self) -> int:
        """The next trace id."""
        self._traces += 1
        return self._traces

    def entropy(self, length: int) -> bytes:
        """So many zero bytes."""
        return bytes(length)


class MemoryExporter:
    """Keeps every batch it is given.

    Args:
        room: Batches taken at most; more are answered with "no room now".
        reserve: Batches taken beyond them where they are urgent.

    Attributes:
        fullness: How much of the room is in use, as the run is told.
        waits_for: What a flush waits for.
        keeps_unsent: Whether what cannot be sent now is kept for later on purpose.
        is_accepted: Whether the ingest tier has everything, as the run is told.
        is_durable: Whether the store has everything, as the run is told.
        obstacle: What stands in the way, as the run is told.
        is_ended: Whether the last batch came.
        is_closed: Whether it was closed.
        left_open: The rows of the spans that were open when they were last kept; None: none were.
    """

    place = "memory"

    def __init__(self, *, room: int | None = None, reserve: int = 0) -> None:
        self.batches: list[SealedBatch] = []
        self.room = room
        self.reserve = reserve
        self.fullness = 0.0
        self.waits_for: Wait = "spooled"
        self.keeps_unsent = False
        self.is_accepted = self.is_durable = True
        self.obstacle: Obstacle | None = None
        self.is_ended = False
        self.is_closed = False
        self.left_open: SealedBatch | None = None

    def send(self, batch: SealedBatch, *, is_last: bool = False, urgent: bool = False) -> bool:
        """Keep a batch, unless there is no room."""
        if self.room is not None and len(self.batches) >= self.room:
            if not urgent or self.reserve <= 0:
                return False
            self.reserve -= 1
        self.batches.append(batch)
        self.is_ended = is_last
        return True

    def take_obstacle(self) -> Obstacle | None:
        """What stands in the way."""
        return self.obstacle

    def sync(self) -> None:
        """Memory has nothing to write back."""

    def leave_open(self, batch: SealedBatch | None) -> None:
        """Keep the rows of open spans in place of those before."""
        self.left_open = batch

    def close(self) -> None:
        """Note that it was closed."""
        self.is_closed = True

    def messages(self) -> list[Batch]:
        """The batches, parsed, in order."""
        return [Batch.FromString(batch.payload) for batch in self.batches]

    def headers(self) -> list[Header]:
        """The batches' headers, in order."""
        return [message.header for message in self.messages()]

    def rows(self, section: str) -> list[dict[str, object]]:
        """All rows of a section, as the table will hold them: names for text, None for absent."""
        return [row for message in self.messages() for row in rows_of(message, section)]

    def spans(self) -> RecordedSpans:
        """The spans recorded so far, to ask and to assert about; what is not sealed yet is not there: `run.flush()`."""
        return RecordedSpans(self.rows("spans"), self.rows("events"))


def rows_of(message: Batch, section: str) -> Iterator[dict[str, object]]:
    """The rows of one section of a batch: wire field name → value; lists as lists, maps as dicts."""
    declared = SECTION_BY_NAME[section]
    columns = _columns(message, declared)
    part = getattr(message, section)
    count = len(getattr(part, declared.key))
    mask = list(getattr(part, "present", ())) or [-1] * count  # a section whose fields are all there has none
    for row in range(count):
        values = {name: column[row] for name, column in columns.items()}
        for field in declared.fields:
            if field.optional is not None and not mask[row] >> field.optional & 1:
                values[field.name] = None
        yield _with_maps(declared, values)


def _columns(message: Batch, section: Section) -> dict[str, Sequence[object]]:
    part = getattr(message, section.name)
    count = len(getattr(part, section.key))
    columns: dict[str, Sequence[object]] = {}
    for field in section.fields:
        if field.wire not in (Wire.COUNT, Wire.PRESENT):
            columns[field.name] = _column(message, part, field=field, count=count)
    return columns


def _column(message: Batch, part: object, *, field: Field, count: int) -> Sequence[object]:
    values: Sequence[object] = list(getattr(part, field.name))
    if field.wire is Wire.DICT:
        values = [message.strings[cast("int", index)] for index in values]
    if field.count is None:
        empty = "" if field.wire in (Wire.DICT, Wire.STRING) else 0
        return values or [None if field.optional is not None else empty] * count
    lengths = list(getattr(part, field.count)) or [0] * count
    ends = accumulate(lengths)
    return [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _with_maps(section: Section, values: dict[str, object]) -> dict[str, object]:
    for column in section.maps:
        keys = cast("list[str]", values.pop(column.keys))
        entries: Mapping[str, object] = dict(zip(keys, cast("list[object]", values.pop(column.values)), strict=True))
        values[column.name] = entries
    return values


if TYPE_CHECKING:
    from rankscope._clock import Clock
    from rankscope._ids import Ids

    _clock: Clock = ManualClock()
    _ids: Ids = CountingIds()
    _exporter: Exporter = MemoryExporter()
