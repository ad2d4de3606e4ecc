"""One segment as it is read: whole frames only, whatever lies between them."""

import contextlib
import errno
import os
import time
from bisect import bisect_left
from pathlib import Path

from rankscope.spool._disk import first_seq_of, segment_paths
from rankscope.spool._errors import SpoolError
from rankscope.spool._frames import (
    FRAME_HEAD,
    FRAME_MAGIC,
    SEGMENT_HEAD,
    Frame,
    frame_of,
    header_bytes,
    read_frame_head,
    read_segment_head,
)
from rankscope.spool._head import SpoolHead

PAGE = 4_096
FAILING_S = 30.0
"""How long a read error is taken for one that passes: a path that fails over, a server that restarts."""

MAX_FAULTS = 20
"""Words kept of one segment."""

HEADER_BYTES = 64 * 1024
"""More than a batch's header takes: its texts are bounded."""


class ReadSegment:
    """A segment and an index of its frames, made as far as it was read.

    Args:
        path: The file.
        incarnation: Whose batches it holds: others' are no frames.

    Attributes:
        last: Seq of the last frame that was found, and whether it ends the stream; None: none was.
        faults: What was found damaged, in words.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, incarnation: bytes) -> None:
        self.path = path
        self.first_seq = first_seq_of(path)
        self._incarnation = incarnation
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._seqs: list[int] = []
        self._offsets: list[int] = []
        self._end = 0
        self._is_begun = False
        self._failing_since = float("inf")
        self.last: tuple[int, bool] | None = None
        self.faults: list[str] = []

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def is_in_place(self) -> bool:
        """Whether its path still leads to it."""
        try:
            found, ours = self.path.stat(), os.fstat(self._descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    @property
    def end(self) -> int:
        """Bytes up to the end of the last frame that was found."""
        return self._end

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._descriptor).st_size

    def tail(self) -> bytes:
        """What lies behind the last frame that was found.

        Raises:
            OSError: the disk cannot read it now.
        """
        return self._bytes(self._end, max(0, self.size - self._end))

    def read(self, seq: int, *, is_closed: bool) -> Frame | None:
        """The frame with that seq, or the next one behind it.

        Args:
            seq: Asked for.
            is_closed: Nothing is appended any more: what is no frame is damage, not a frame on its way.

        Returns:
            None: none so far.

        Raises:
            OSError: the disk cannot read it now.
        """
        while True:
            place = bisect_left(self._seqs, seq)
            if place == len(self._seqs):
                break
            frame = self._frame_at(self._offsets[place])
            if frame is not None:
                return frame
            # It was whole when it was found: the disk has changed it since.
            self._note(f"frame {self._seqs[place]} was damaged while it lay there")
            del self._seqs[place], self._offsets[place]
        frame = self._next(is_closed=is_closed)
        while frame is not None and frame.seq < seq:
            frame = self._next(is_closed=is_closed)
        return frame

    def _next(self, *, is_closed: bool) -> Frame | None:
        """The next frame that was not found before."""
        if not self._is_begun and not self._start(is_closed=is_closed):
            return None
        frame = self._frame_at(self._end)
        if frame is None or not self._follows(frame):
            found = self._resync(is_closed=is_closed)
            if found is None:
                return None
            self._end, frame = found
        self._seqs.append(frame.seq)
        self._offsets.append(self._end)
        self._end += FRAME_HEAD + len(frame.payload)
        self.last = (frame.seq, frame.is_last)
        return frame

    def _start(self, *, is_closed: bool) -> bool:
        """Read the segment's header, or go on without it."""
        head = read_segment_head(self._bytes(0, SEGMENT_HEAD))
        if head is not None and head.incarnation == self._incarnation and head.first_seq == self.first_seq:
            self._end, self._is_begun = SEGMENT_HEAD, True
        elif is_closed:
            self._note("its header is damaged")
            self._is_begun = True
        return self._is_begun

    def header_below(self, seq: int) -> tuple[int, bytes] | None:
        """Seq and header of the last batch below `seq` that was read; None: none was."""
        place = bisect_left(self._seqs, seq) - 1
        if place < 0:
            return None
        return self._seqs[place], header_bytes(self._bytes(self._offsets[place] + FRAME_HEAD, HEADER_BYTES))

    def _frame_at(self, offset: int) -> Frame | None:
        head = read_frame_head(self._bytes(offset, FRAME_HEAD))
        if head is None:
            return None
        return frame_of(head, self._bytes(offset + FRAME_HEAD, head.length), incarnation=self._incarnation)

    def _note(self, fault: str) -> None:
        if fault not in self.faults and len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)

    def _bytes(self, offset: int, length: int) -> bytes:
        """So many bytes, fewer at the end of the file; zeros where the disk has failed to read them for long.

        Raises:
            OSError: the disk cannot read them now.
        """
        try:
            return os.pread(self._descriptor, length, offset)
        except OSError as error:
            self._failing_since = min(self._failing_since, time.monotonic())
            if error.errno != errno.EIO or time.monotonic() - self._failing_since < FAILING_S:
                raise
            self._note(f"{length} bytes at {offset}: {error.strerror}")
            return b"".join(self._page(place, end=offset + length) for place in range(offset, offset + length, PAGE))

    def _page(self, offset: int, *, end: int) -> bytes:
        length = min(PAGE, end - offset)
        try:
            return os.pread(self._descriptor, length, offset)
        except OSError:
            return bytes(length)

    @property
    def is_failing(self) -> bool:
        """Whether the disk could not read some of it."""
        return self._failing_since != float("inf")

    def _follows(self, frame: Frame) -> bool:
        return frame.seq >= self.first_seq and (not self._seqs or frame.seq > self._seqs[-1])

    def _resync(self, *, is_closed: bool) -> tuple[int, Frame] | None:
        """The next whole frame behind what is none, and where it begins."""
        start = self._bytes(self._end, 4)
        if len(start) < 4 or (start == bytes(4) and not is_closed):
            return None
        rest = self.tail()
        place = rest.find(FRAME_MAGIC, 1)
        while place >= 0:
            head = read_frame_head(rest, place)
            if head is not None:
                payload = rest[place + FRAME_HEAD : place + head.size]
                frame = frame_of(head, payload, incarnation=self._incarnation)
                if frame is not None and self._follows(frame):
                    self._note(f"{place} bytes at {self._end} are damaged")
                    return self._end + place, frame
            place = rest.find(FRAME_MAGIC, place + 1)
        return None


def head_of(folder: Path) -> SpoolHead:
    """The head of a spool; where its file is damaged or gone, what the first batch that can be read says.

    Raises:
        SpoolError: there is neither.
    """
    try:
        return SpoolHead.read(folder)
    except SpoolError:
        head = _head_of_batches(folder)
        if head is None:
            raise
        return head


def _head_of_batches(folder: Path) -> SpoolHead | None:
    """The head of a spool as its first batch that can be read says; None: there is none."""
    with contextlib.suppress(ValueError, OSError):
        incarnation = bytes.fromhex(folder.name[-32:])
        for path in segment_paths(folder):
            segment = ReadSegment(path, incarnation)
            frame = segment.read(0, is_closed=True)
            segment.close()
            if frame is not None:
                return SpoolHead.of_header(frame.header)
    return None
