"""The owner's side of a spool: sealed batches are appended, and that is all the trainer waits for.

Promises: `append` raises nothing that a disk can cause, and takes a batch whole or not at all; what it took survives
the death of every process; the spool never grows above its bound, but for the reserve; where somebody removes it
under the process it is made again, and only what was in it is lost; no thread, no lock that a sender holds.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rankscope._export import SealedBatch
from rankscope.spool import _left_open
from rankscope.spool._disk import RESERVE, RESERVE_BYTES, OpenSegment, make_reserve, segment_paths, sync_folder
from rankscope.spool._errors import SpoolError
from rankscope.spool._frames import SEGMENT_HEAD, frame_head
from rankscope.spool._head import FILE, SpoolHead, write_whole
from rankscope.spool._locks import FolderLock
from rankscope.spool._places import MOUNTS, default_bytes, file_system_of, is_local
from rankscope.spool._standing import Watched
from rankscope_proto.failpoints import reach

SEGMENT_BYTES = 16 * 1024 * 1024
MIN_SEGMENT_BYTES = 64 * 1024
SEGMENTS = 8
"""Segments that a small bound is divided into: space comes back by whole ones."""

LOOK_S = 1.0
"""Age at which what the disk holds is counted again."""

TOUCH_S = 3_600.0
"""Age at which the files that are written once are made to look young: cleaners of temporary folders remove files by
their age, and after 10 days take a long training's lock for rubbish."""

DRAFT_S = 60.0
"""Age at which a folder without its final name was left by a process that is gone: making one takes milliseconds."""

OWNER_LOCK = "owner.lock"
KEY = "key"


class SpoolWriter:
    """A spool that this process appends to; made by `create`, used by one thread.

    Args:
        folder: The spool's folder.
        head: Whose it is.
        lock: The owner's lock, taken.
        key: The API key beside it; None: none.
        max_bytes: Bound of the segments' bytes.
        fsync_each: Wait for the disk at each append, not only at each `sync`.
    """

    def __init__(
        self,
        folder: Path,
        head: SpoolHead,
        *,
        lock: FolderLock,
        key: str | None = None,
        max_bytes: int,
        fsync_each: bool = False,
    ) -> None:
        self.folder = folder
        self.next_seq = 0
        self._head = head
        self._lock = lock
        self._key = key
        self._max_bytes = max_bytes
        self._segment_bytes = max(MIN_SEGMENT_BYTES, min(SEGMENT_BYTES, max_bytes // SEGMENTS))
        self._fsync_each = fsync_each
        self._standing = Watched(folder)
        self._segment: OpenSegment | None = None
        self._finished: list[OpenSegment] = []
        self._is_listed = True
        self._held = self._room = 0
        self._looked_at = float("-inf")
        self._touched_at = time.monotonic()
        self._is_stuck = False
        self._is_closed = False

    @classmethod
    def create(
        cls,
        root: Path,
        head: SpoolHead,
        *,
        key: str | None = None,
        max_bytes: int | None = None,
        fsync_each: bool = False,
        any_file_system: bool = False,
    ) -> "SpoolWriter":
        """Make the spool of this process, and hold it.

        Args:
            root: Where spools lie; made with mode 0700 when it is not there.
            head: Whose spool it is.
            key: The API key to send with; None: none.
            max_bytes: Bound; None: `default_bytes(root)`.
            fsync_each: Wait for the disk at each append, not only at each `sync`.
            any_file_system: Take a root that is not on a disk of this machine.

        Raises:
            SpoolError: the root is not on a disk of this machine, cannot be written, or has this spool already.
        """
        if not any_file_system:
            refuse_elsewhere(root, MOUNTS.read_text() if MOUNTS.exists() else "")
        folder = root / head.incarnation.hex()
        try:
            lock = _made(root, folder, head=head, key=key)
        except OSError as error:
            raise SpoolError(
                f"no spool can be made in {root}: {error.strerror or error}; "
                "name a folder that you can write with RANKSCOPE_SPOOL"
            ) from error
        bound = default_bytes(root) if max_bytes is None else max_bytes
        writer = cls(folder, head, lock=lock, key=key, max_bytes=bound, fsync_each=fsync_each)
        make_reserve(folder)
        return writer

    @property
    def accepted(self) -> int:
        """Every seq below it is in the broker, or declared lost."""
        return self._standing.now().accepted

    @property
    def durable(self) -> int:
        """Every seq below it is in the store, or declared lost."""
        return self._standing.now().durable

    @property
    def fullness(self) -> float:
        """Bytes held over the bound, 0.0 to 1.0; 1.0 also when the disk took nothing at the last try."""
        if self._is_stuck:
            return 1.0
        self._look()
        return min(1.0, self._held / max(1, self._bound))

    def append(self, batch: SealedBatch, *, is_last: bool = False, urgent: bool = False) -> bool:
        """Append a batch; its seq is above every one appended before.

        Args:
            batch: What to append.
            is_last: Nothing will be sealed behind it.
            urgent: Where there is no space, take the reserve: for gaps and the last word.

        Returns:
            Whether it is in the spool; where not, nothing of it is, and the caller keeps it.
        """
        if self._is_closed or batch.seq < self.next_seq:
            return False
        self._stay_in_place()
        head = frame_head(batch, skipped=batch.seq - self.next_seq, is_last=is_last)
        parts = [head, batch.payload]
        taken = self._appended(batch, parts, in_reserve=False) or (
            urgent and self._appended(batch, parts, in_reserve=True)
        )
        if taken:
            self.next_seq = batch.seq + 1
            self._settle()
        if taken and is_last:
            _left_open.replace(self.folder, None)
        return taken

    def leave_open(self, batch: SealedBatch | None) -> None:
        """Keep the rows of the spans that are open now, in place of those kept before.

        If this process dies, whoever sends states them, but for those that ended in a batch appended since.

        Args:
            batch: The rows, as they would be stated; its seq is the next one that may hold any of these spans. None:
                no span is open.
        """
        if not self._is_closed:
            _left_open.replace(self.folder, batch)

    def sync(self) -> None:
        """Once a second: have the disk keep what was appended, and see to the reserve."""
        if self._is_closed:
            return
        self._stay_in_place()
        self._look(anew=True)
        self._sync_segments()
        if not self._is_stuck:
            make_reserve(self.folder)

    def close(self) -> None:
        """Append no more: whoever sends may remove the spool once all of it is durable."""
        if self._is_closed:
            return
        self._is_closed = True
        self._finish_segment()
        with contextlib.suppress(OSError):
            (self.folder / RESERVE).unlink(missing_ok=True)
        self._sync_segments()
        self._lock.release()

    @property
    def _bound(self) -> int:
        # Others fill the same disk: what is left of it bounds a spool too.
        return min(self._max_bytes, self._held + self._room)

    def _appended(self, batch: SealedBatch, parts: Sequence[bytes], *, in_reserve: bool) -> bool:
        """Append to the segment that is open, or to a new one that takes its place only when it took the frame."""
        size = sum(map(len, parts))
        segment = self._segment
        try:
            reach("spool.append")
            if segment is None or not self._takes(segment, size, in_reserve=in_reserve):
                segment = self._opened(batch.seq, size, in_reserve=in_reserve)
            if segment is None:
                return False
            before = 0 if segment is not self._segment else segment.used
            segment.append(parts)
        except (OSError, SpoolError):
            self._is_stuck = True
            if segment is not None and segment is not self._segment:
                segment.discard()
            return False
        self._held += segment.used - before
        self._is_stuck = self._is_stuck and in_reserve
        self._install(segment)
        return True

    def _settle(self) -> None:
        # It is in the spool whatever comes of these: a disk that does not sync still outlives every process.
        with contextlib.suppress(OSError):
            reach("spool.after_write")
            if self._fsync_each:
                self._sync_segments()

    def _takes(self, segment: OpenSegment, size: int, *, in_reserve: bool) -> bool:
        if segment.room:  # the rest of a reserve is for urgent batches only
            return in_reserve and segment.used + size <= segment.room
        return not in_reserve and segment.used + size <= self._segment_bytes and self._has_room(size)

    def _opened(self, seq: int, size: int, *, in_reserve: bool) -> OpenSegment | None:
        """A segment that takes a frame of `size` bytes first; None when there is no room for one."""
        if in_reserve:
            if SEGMENT_HEAD + size > RESERVE_BYTES:
                return None
            return OpenSegment.of_reserve(self.folder, seq, incarnation=self._head.incarnation)
        if not self._has_room(SEGMENT_HEAD + size):
            return None
        return OpenSegment.make(self.folder, seq, incarnation=self._head.incarnation)

    def _stay_in_place(self) -> None:
        """Where somebody removed the spool, or a part of it, have what comes from here on in a whole one."""
        if self._segment is not None and not self._segment.is_in_place():
            self._finish_segment()
        with contextlib.suppress(OSError, SpoolError):  # then there is no room there, and the next append says so
            if not (self.folder / FILE).exists():
                self._make_again()
            elif time.monotonic() - self._touched_at > TOUCH_S:
                self._touched_at = time.monotonic()
                for name in (OWNER_LOCK, FILE, KEY, RESERVE):
                    _touch(self.folder / name)

    def _make_again(self) -> None:
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.folder / OWNER_LOCK).exists():
            self._lock.release()
            self._lock = FolderLock(self.folder / OWNER_LOCK)
            self._lock.take()
        _furnish(self.folder, head=self._head, key=self._key)
        self._looked_at = float("-inf")

    def _install(self, segment: OpenSegment) -> None:
        if segment is not self._segment:
            self._finish_segment()
            self._segment, self._is_listed = segment, False

    def _finish_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.finish()
            self._finished.append(segment)

    def _sync_segments(self) -> None:
        """Have the disk keep the open segment and those finished since: not in `append`, which 16 MiB would hold up."""
        finished, self._finished = self._finished, []
        for segment in finished:
            with contextlib.suppress(OSError):
                segment.sync()
            segment.close()
        if self._segment is not None:
            with contextlib.suppress(OSError):
                self._segment.sync()
        if finished or not self._is_listed:
            sync_folder(self.folder)
            self._is_listed = True

    def _has_room(self, needed: int) -> bool:
        self._look()
        if self._held + needed <= self._bound:
            return True
        self._drop_durable()
        self._look(anew=True)
        return self._held + needed <= self._bound

    def _drop_durable(self) -> None:
        # The sender deletes no segment that may still be appended to: with a small bound that one alone can fill it.
        if self._segment is not None and self.durable >= self.next_seq:
            self._segment.discard()
            self._segment = None

    def _look(self, *, anew: bool = False) -> None:
        """Count what the spool holds: whoever sends deletes segments."""
        now = time.monotonic()
        if not anew and now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        try:
            paths = segment_paths(self.folder)
        except OSError:
            return
        held = 0
        for path in paths:
            with contextlib.suppress(OSError):
                held += path.stat().st_size
        if self._segment is not None and self._segment.room:
            held -= self._segment.room - self._segment.used  # the rest of the reserve is no part of the bound
        self._held = held
        with contextlib.suppress(OSError):
            self._room = shutil.disk_usage(self.folder).free


def refuse_elsewhere(root: Path, mounts: str) -> None:
    """Refuse a root that is not on a disk of this machine.

    Args:
        root: Where spools would lie.
        mounts: The text of `/proc/self/mountinfo`.

    Raises:
        SpoolError: it is not; names the file system and what to do.
    """
    kind, place = file_system_of(root.expanduser().resolve(), mounts)
    if not is_local(kind):
        raise SpoolError(
            f"{root} is on {kind} (mounted at {place}), not on a disk of this machine: name a local folder with "
            "RANKSCOPE_SPOOL, or set RANKSCOPE_SPOOL_ANY_FS=1 if writing there can never stall a step"
        )


def _made(root: Path, folder: Path, *, head: SpoolHead, key: str | None) -> FolderLock:
    """The folder with what is written once; others see it when it is whole and held."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(root)
    if folder.exists():
        lock = FolderLock(folder / OWNER_LOCK)
        lock.take()
        lock.release()
        raise SpoolError(f"{folder} is there already: an incarnation has one spool, made once")
    draft = root / f".{folder.name}.{os.getpid()}"
    draft.mkdir(mode=0o700)
    try:
        _furnish(draft, head=head, key=key)
        lock = FolderLock(draft / OWNER_LOCK)
        lock.take()
        draft.rename(folder)
    except (OSError, SpoolError):
        shutil.rmtree(draft, ignore_errors=True)
        raise
    sync_folder(root)
    return lock.moved(folder / OWNER_LOCK)


def _furnish(folder: Path, *, head: SpoolHead, key: str | None) -> None:
    """Write what a spool's folder holds from the start; the head last: without it nothing is sent."""
    if key is not None:
        write_whole(folder / KEY, key.encode())
    head.write(folder)


def _touch(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.utime(path)


def _sweep(root: Path) -> None:
    """Remove what processes left that were killed while they made their spools."""
    with contextlib.suppress(OSError):
        for draft in root.glob(f".{'[0-9a-f]' * 32}.*"):
            is_old = time.time() - draft.stat().st_mtime > DRAFT_S
            if is_old and FolderLock(draft / OWNER_LOCK).is_free():
                shutil.rmtree(draft, ignore_errors=True)
