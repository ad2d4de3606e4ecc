"""From the book to the spool, each batch exactly once.

A batch is in the book before it is in a spool, and leaves the book once the spool has it for good. What a process
that was killed left in between is settled by the next one: a spool that is there tells whether it has the batch; one
that is gone was emptied by an agent, and then the same batch is sent again, which whoever has it already knows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankscope._block import Block
from rankscope._clock import Clock
from rankscope._export import SealedBatch
from rankscope._settings import Settings
from rankscope.front.book import KEPT_NS, Book, Kept
from rankscope.front.rows import Whole, block_of
from rankscope.front.stream import Stream
from rankscope.spool import SpoolError, SpoolHead, SpoolReader, SpoolWriter
from rankscope_proto.failpoints import reach
from rankscope_proto.v1.batch_pb2 import Batch

MOST_STREAMS = 64
"""Runs with an open spool at a time; of more, the one that was quiet for longest ends its stream."""

LONE_BYTES = 8 * 1024 * 1024
"""Bound of a spool for one batch."""


class Outbox:
    """Carries batches from the book to spools.

    Args:
        book: Where they are kept until then.
        settings: Of the agent: where spools lie and where they go.
        clock: Time.
    """

    def __init__(self, book: Book, settings: Settings, *, clock: Clock) -> None:
        self._book = book
        self._settings = settings
        self._clock = clock
        self._streams: dict[int, Stream] = {}

    def recover(self) -> None:
        """Settle what a process before this one left, before anybody sends from the spools.

        Raises:
            OSError, SpoolError: a spool cannot be read or made now.
            UnavailableError: the book cannot be changed.
        """
        for _, batch in self._book.batches():
            self._settle(batch)

    def write(self, run: int, spans: Mapping[Kept, Whole]) -> bool:
        """Write the spans of a run, in one batch; whether the spool has it.

        Raises:
            SpoolError: no spool can be made now.
            UnavailableError: the book cannot be changed.
        """
        stream = self._stream(run)
        stream.used_ns = self._clock.wall_ns()
        try:
            with self._book.changing():
                batch = stream.seal((block_of(list(spans.values())),))
                self._book.seal(run, list(spans), batch=batch)
        except BaseException:
            # What was sealed is in no spool and never will be: its number and its sums belong to nobody.
            self._streams.pop(run).abandon()
            raise
        reach("front.after_seal")
        return self._deliver(run, batch)

    def deliver(self) -> bool:
        """Append what found no room before; whether nothing is left.

        Raises:
            OSError, SpoolError: a spool cannot be read or made now.
            UnavailableError: the book cannot be changed.
        """
        return all(self._deliver(run, batch) for run, batch in self._book.batches())

    def say(self, run: int, blocks: Sequence[Block]) -> None:
        """Append rows about a run that may get lost."""
        self._stream(run).say(blocks)

    @property
    def streams(self) -> Mapping[int, int]:
        """Runs with an open spool, and when each was used last, in ns."""
        return {run: stream.used_ns for run, stream in self._streams.items()}

    def end(self, run: int) -> None:
        """End a run's stream in order."""
        self._streams.pop(run).end()

    def close(self) -> None:
        """End every stream: those with a batch that found no room without a last word, which the next one writes."""
        held = {batch.incarnation for _, batch in self._book.batches()}
        for stream in self._streams.values():
            if stream.incarnation in held:
                stream.abandon()
            else:
                stream.end()
        self._streams.clear()

    def _stream(self, run: int) -> Stream:
        if run not in self._streams:
            if len(self._streams) >= MOST_STREAMS:
                self.end(min(self._streams, key=lambda known: self._streams[known].used_ns))
            self._streams[run] = Stream(self._book.run_name(run), self._settings, clock=self._clock)
        return self._streams[run]

    def _deliver(self, run: int, batch: SealedBatch) -> bool:
        stream = self._streams.get(run)
        if stream is None or stream.incarnation != batch.incarnation:
            self._settle(batch)
            return True
        if not stream.append(batch):
            return False
        reach("front.after_append")
        self._note(batch)
        return True

    def _settle(self, batch: SealedBatch) -> None:
        """Find out where a batch is whose stream is no more, and bring it on its way where it is not."""
        folder = self._settings.spool_root / batch.incarnation.hex()
        if not folder.exists():
            self._send_again(batch)
            self._note(batch)
        elif _has(SpoolReader(folder), batch.seq):
            self._note(batch)
        else:
            with self._book.changing():
                self._book.open_again(batch)

    def _note(self, batch: SealedBatch) -> None:
        with self._book.changing():
            self._book.note_written(batch, due=self._clock.wall_ns() + KEPT_NS)

    def _send_again(self, batch: SealedBatch) -> None:
        settings = self._settings
        head = SpoolHead.of_header(Batch.FromString(batch.payload).header)
        writer = SpoolWriter.create(
            settings.spool_root,
            replace(head, endpoints=settings.endpoint),
            key=settings.key,
            max_bytes=LONE_BYTES,
            any_file_system=settings.spool_any_fs,
        )
        is_there = writer.append(batch, is_last=True, urgent=True)
        writer.close()
        if not is_there:
            raise SpoolError(f"{writer.folder} takes no batch: free some space on its disk")


def _has(reader: SpoolReader, seq: int) -> bool:
    try:
        return seq < reader.end_seq
    finally:
        reader.close()
