"""The sender's side of a spool: frames in order, holes declared, whole segments given back once they are durable.

Promises: it always starts, whatever the disk did to the files; what it yields is what was appended, byte for byte;
it never deletes what is not durable; it never writes where the owner appends while the owner lives; what the disk
cannot say for a moment is an error, never an absence.
"""

import contextlib
import os
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from rankscope._host import is_alive, process_space, process_start
from rankscope.spool import _left_open
from rankscope.spool._damage import Damage, damage_between, emitted_of, emitted_with
from rankscope.spool._disk import first_seq_of, segment_paths
from rankscope.spool._errors import SpoolError
from rankscope.spool._evidence import keep, keep_file, outlive
from rankscope.spool._frames import Frame
from rankscope.spool._locks import FolderLock
from rankscope.spool._segments import ReadSegment, head_of
from rankscope.spool._standing import Standing
from rankscope.spool._writer import KEY, OWNER_LOCK
from rankscope_proto.failpoints import reach

SENDER_LOCK = "sender.lock"
OPEN_SEGMENTS = 2
_NEVER = 2**63
"""Above every seq."""

FOLLOWING = 4
"""Batches behind a hole that are asked whether they declare some of it: the owner does so in the next it seals."""


class SpoolReader:
    """A spool whose batches are sent away; used by one thread.

    Args:
        folder: The spool's folder.

    Raises:
        SpoolError: it is no spool, or cannot be read now.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.head = head_of(folder)
        self._standing = _standing_of(folder)
        self._open: dict[Path, ReadSegment] = {}
        self._faults: dict[str, tuple[str, ...]] = {}
        self._end_seq = 0
        self._is_ended = False
        self._needed_from: int | None = None
        self._sender = FolderLock(folder / SENDER_LOCK)

    @property
    def key(self) -> str | None:
        """The API key to send with; None: none was given."""
        try:
            return (self.folder / KEY).read_text().strip() or None
        except OSError:
            return None

    def hold(self) -> None:
        """Be the one who sends.

        Raises:
            SpoolHeldError: another one is; names it.
            SpoolError: the folder cannot be written.
        """
        self._sender.take()

    def release(self) -> None:
        """Let another one send."""
        self._sender.release()

    def close(self) -> None:
        """Close the files, and let another one send."""
        for segment in self._open.values():
            segment.close()
        self._open.clear()
        self.release()

    @property
    def owner_is_gone(self) -> bool:
        """Whether nothing will be appended any more: the owner ended, or closed the spool."""
        is_alive = self._owner_is_alive()
        lock = self.folder / OWNER_LOCK
        if is_alive is False:
            return True  # a forked child may keep the lock's file open for longer than its parent lived
        if not lock.exists():
            return not is_alive  # staged out, or somebody removed files under a living owner
        return FolderLock(lock).is_free()

    def _owner_is_alive(self) -> bool | None:
        """None: it is not a process of this machine, boot and pid namespace."""
        head = self.head
        if head.pid <= 0 or not head.process_space or head.process_space != process_space():
            return None
        return is_alive(head.pid) and (head.process_start < 0 or process_start(head.pid) in {None, head.process_start})

    @property
    def accepted(self) -> int:
        """Every seq below it is in the broker, or declared lost, as far as was noted."""
        return self._standing.accepted

    @property
    def durable(self) -> int:
        """Every seq below it is in the store, or declared lost, as far as was noted."""
        return self._standing.durable

    @property
    def base(self) -> int:
        """The lowest seq held; the end when none is; OSError where that cannot be read now."""
        frame = self.next(0)
        return self.end_seq if frame is None else frame.seq

    @property
    def end_seq(self) -> int:
        """The seq behind the last batch that is there, or that was; OSError where that cannot be read now."""
        self._look_at_end()
        return max(self._end_seq, self.durable)

    @property
    def is_ended(self) -> bool:
        """Whether the batch that the owner marked as its last is there; OSError where that cannot be read now."""
        self._look_at_end()
        return self._is_ended

    @property
    def backlog_bytes(self) -> int:
        """Bytes of segments that hold something not durable yet."""
        if self.durable >= self.end_seq:
            return 0
        size = 0
        for path in segment_paths(self.folder):
            with contextlib.suppress(OSError):
                size += path.stat().st_size
        return size

    def next(self, seq: int) -> Frame | None:
        """The batch with that seq, or the next one behind it.

        Returns:
            None: nothing yet. A batch with a higher seq than asked for: those before it were never appended,
            or are damaged (`recover` says which).

        Raises:
            OSError: what is there cannot be read now; it is not known whether there is anything.
        """
        frame = self._in_open(seq) if seq < self._end_seq else None
        if frame is not None:
            return frame
        is_gone = self.owner_is_gone
        paths = segment_paths(self.folder)
        first = max(0, bisect_right([first_seq_of(path) for path in paths], seq) - 1)
        for number in range(first, len(paths)):
            is_closed = is_gone or number + 1 < len(paths)
            segment = self._segment(paths[number])
            frame = self._read(segment, seq, is_closed=is_closed) if segment is not None else None
            if frame is not None:
                return frame if frame.seq == seq else self._in_open(seq) or frame
        return None

    def _in_open(self, seq: int) -> Frame | None:
        """The batch, where its file is open here: then it can be read also after somebody removed that."""
        for segment in self._open.values():
            frame = self._read(segment, seq, is_closed=False) if segment.first_seq <= seq else None
            if frame is not None and frame.seq == seq:
                return frame
        return None

    def recover(self, *, up_to: int = _NEVER) -> list[Damage]:
        """Read what is held and not durable, and say what is missing of it; says so again as long as it lies there.

        Where the owner is gone, what lies behind its last whole frame is cut off, a copy of it kept in `bad/`.

        Args:
            up_to: The batch to stop at: behind a hole everything waits until it is stated, so who sends goes no
                farther than the hole's end, and has read each batch once when the last hole is stated.

        Raises:
            OSError: what is there cannot be read now.
        """
        found: list[Damage] = []
        expected, emitted = 0, Counter[str]()
        # The last one of those that are durable, where it is held still, says what was emitted before a hole.
        frame = self.next(max(0, self.durable - 1))
        while frame is not None:
            if expected <= self.durable:
                expected, emitted = self.durable, self._emitted_at_durable(expected, emitted)
            if expected < frame.seq - frame.skipped:
                following = self._following(frame)
                detail = self._seen(expected, frame)
                found.append(damage_between(expected, frame, emitted=emitted, following=following, detail=detail))
            if frame.seq >= up_to:
                return found
            expected, emitted = frame.seq + 1, emitted_with(frame)
            frame = self.next(frame.seq + 1)
        if self.owner_is_gone:
            self._cut_tail()
        return found

    def left_open(self) -> Frame | None:
        """The spans that the process left open, as rows; no batch below the seq holds any. None: it left none.

        Raises:
            OSError: what is there cannot be read now.
        """
        return None if self.is_ended else _left_open.read(self.folder, self.head.incarnation)

    def free_below(self, seq: int) -> int:
        """Delete the segments whose batches are all below `seq`; returns how many went.

        Of a process that is gone those stay that tell which of the spans it left open ended after all.

        Raises:
            OSError: the spool cannot be listed now.
        """
        seq = min(seq, self._least_needed())
        paths = segment_paths(self.folder)
        gone = [path for path, behind in pairwise(paths) if first_seq_of(behind) <= seq]
        if not gone:
            return 0
        if first_seq_of(paths[len(gone)]) == seq:
            self._count_up_to_end(gone[-1])
        with contextlib.suppress(OSError):
            self._standing.write(self.folder, synced=True)
        for path in gone:
            reach("spool.free")
            self._drop(path)
        return len(gone)

    def set_aside(self, frame: Frame, reason: str) -> Path | None:
        """Keep a copy of a batch that is refused for good, with the reason; None where the disk is full."""
        place = keep(self.folder, f"{frame.seq:020d}.batch", data=frame.payload)
        if place is not None:
            keep(self.folder, f"{frame.seq:020d}.txt", data=reason.encode())
        return place

    def _least_needed(self) -> int:
        """The lowest seq that is asked for once everything is delivered."""
        if self._needed_from is None and self.owner_is_gone:
            left = self.left_open()
            self._needed_from = _NEVER if left is None else left.seq
        return _NEVER if self._needed_from is None else self._needed_from

    def note_standing(self, accepted: int, durable: int) -> None:
        """Tell the owner, and whoever sends next, how far delivery is."""
        if (accepted, durable) == (self._standing.accepted, self._standing.durable):
            return
        counted, emitted = self._counted_below(durable)
        self._standing = Standing(accepted, durable, counted, emitted)
        with contextlib.suppress(OSError):  # the next one is written, and a lower standing only repeats
            self._standing.write(self.folder)

    def _counted_below(self, seq: int) -> tuple[int, Mapping[str, int]]:
        if seq == self._standing.counted:
            return seq, self._standing.emitted
        for segment in self._open.values():
            if segment.first_seq < seq:
                found = segment.header_below(seq)
                emitted = emitted_of(found[1]) if found is not None and found[0] == seq - 1 else None
                if emitted is not None:
                    return seq, emitted
        return self._standing.counted, self._standing.emitted

    def _count_up_to_end(self, path: Path) -> None:
        """Count what was emitted before the end of a segment: where the next one is damaged nothing else says it."""
        segment = self._segment(path) if self._standing.counted != self.durable else None
        if segment is not None:
            self._read(segment, _NEVER, is_closed=True)
            counted, emitted = self._counted_below(self.durable)
            self._standing = replace(self._standing, counted=counted, emitted=emitted)

    def remove(self) -> bool:
        """Remove the spool.

        Returns:
            False, and nothing happens, while its owner lives, something is not durable, or the disk does not say.
        """
        try:
            if not self.owner_is_gone or self.durable < self.end_seq:
                return False
            self._keep_damaged()
            # At one stroke: half a spool would be taken for one with holes, or without its last word.
            gone = self.folder.with_name(f".{self.head.incarnation.hex()}.{os.getpid()}")
            shutil.rmtree(gone, ignore_errors=True)
            self.folder.rename(gone)
        except OSError:
            return False
        for path in list(self._open):
            self._forget(path)
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def _keep_damaged(self) -> None:
        for segment in self._open.values():
            self._note_faults(segment)
        for path in segment_paths(self.folder):
            if path.name in self._faults:
                keep(self.folder, path.name, data=path.read_bytes())
        outlive(self.folder)

    def _look_at_end(self) -> None:
        """Read the last segment that has a frame as far as it goes."""
        is_closed = self.owner_is_gone
        for path in reversed(segment_paths(self.folder)):
            segment = self._segment(path)
            if segment is not None:
                self._read(segment, _NEVER, is_closed=is_closed)
            if segment is not None and segment.last is not None:
                return
            is_closed = True

    def _read(self, segment: ReadSegment, seq: int, *, is_closed: bool) -> Frame | None:
        frame = segment.read(seq, is_closed=is_closed)
        if segment.last is not None and segment.last[0] >= self._end_seq:
            self._end_seq, self._is_ended = segment.last[0] + 1, segment.last[1]
        return frame

    def _segment(self, path: Path) -> ReadSegment | None:
        segment = self._open.pop(path, None)
        if segment is not None and not segment.is_in_place():
            segment.close()
            segment = None
        try:
            segment = segment or ReadSegment(path, self.head.incarnation)
        except FileNotFoundError:  # freed meanwhile; any other error says nothing of what is there
            return None
        self._open[path] = segment  # the one used last is at the end
        while len(self._open) > OPEN_SEGMENTS:
            self._forget(next(iter(self._open)))
        return segment

    def _forget(self, path: Path) -> None:
        segment = self._open.pop(path, None)
        if segment is not None:
            self._note_faults(segment)
            segment.close()

    def _note_faults(self, segment: ReadSegment) -> None:
        if segment.faults:
            self._faults[segment.path.name] = tuple(segment.faults)

    def _drop(self, path: Path) -> None:
        """Delete a segment; a damaged one is kept aside for a person, where there is room."""
        self._forget(path)
        if path.name not in self._faults or not keep_file(path):
            with contextlib.suppress(OSError):
                path.unlink()

    def _emitted_at_durable(self, known: int, emitted: Counter[str] | None) -> Counter[str] | None:
        """Rows emitted below the durable seq, given those below `known`; None: nobody knows."""
        if known == self.durable:
            return emitted
        return Counter(self._standing.emitted) if self._standing.counted == self.durable else None

    def _following(self, frame: Frame) -> list[Frame]:
        """A few batches behind one."""
        found: list[Frame] = []
        behind = self.next(frame.seq + 1)
        while behind is not None and len(found) < FOLLOWING:
            found.append(behind)
            behind = self.next(behind.seq + 1)
        return found

    def _seen(self, seq_from: int, frame: Frame) -> str:
        """What was seen of a hole, in words."""
        for segment in self._open.values():
            self._note_faults(segment)
        paths = [path for path in segment_paths(self.folder) if first_seq_of(path) <= frame.seq]
        seen = [f"{path.name}: {fault}" for path in paths[-2:] for fault in self._faults.get(path.name, ())]
        return "; ".join(seen) or f"batches {seq_from} to {frame.seq - frame.skipped - 1} are not there"

    def _cut_tail(self) -> None:
        """Cut what lies behind the last whole frame of a spool that nobody appends to."""
        for path in segment_paths(self.folder)[-1:]:
            segment = self._segment(path)
            if segment is None or segment.is_failing or segment.size <= segment.end:
                continue
            with contextlib.suppress(OSError):
                tail = segment.tail()
                if tail.strip(b"\0"):
                    keep(self.folder, f"{path.stem}.tail", data=tail)
                os.truncate(path, segment.end)


def _standing_of(folder: Path) -> Standing:
    try:
        return Standing.read(folder)
    except OSError as error:
        raise SpoolError(f"{folder} cannot be read now: {error.strerror or error}") from error
