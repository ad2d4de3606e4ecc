"""The files of one spool as its owner writes them: segments, and a reserve for when the disk is full.

Promises: a frame is appended whole or the file is cut back to where it was; an error of the disk is an answer, never
an exception; nothing here waits for anything but the disk.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from rankscope.spool._frames import segment_head
from rankscope_proto.failpoints import reach

SUFFIX = ".seg"
RESERVE = "reserve"
RESERVE_BYTES = 1024 * 1024


def segment_path(folder: Path, first_seq: int) -> Path:
    """The file of the segment whose first frame has this seq."""
    return folder / f"{first_seq:020d}{SUFFIX}"


def first_seq_of(path: Path) -> int:
    """The seq a segment is named by."""
    return int(path.stem)


def segment_paths(folder: Path) -> list[Path]:
    """The segments of a spool, in order; none where the folder is not there.

    Raises:
        OSError: it cannot be listed now: what is in it is not known.
    """
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names) if name.removesuffix(SUFFIX).isdecimal()]


class OpenSegment:
    """A segment that frames are appended to.

    Args:
        path: The file.
        descriptor: Open for writing; closed by `close`.
        used: Bytes written so far.
        room: Bytes that are surely there: what lies between `used` and it costs no space.
    """

    def __init__(self, path: Path, descriptor: int, *, used: int, room: int = 0) -> None:
        self.path = path
        self.used = used
        self.room = room
        self._descriptor = descriptor

    @classmethod
    def make(cls, folder: Path, first_seq: int, *, incarnation: bytes) -> "OpenSegment":
        """A new segment with its header.

        Raises:
            OSError: it cannot be made; nothing is left of it.
        """
        path, head = segment_path(folder, first_seq), segment_head(incarnation, first_seq)
        # One of that name holds no frame: an append that failed behind the header left it.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        segment = cls(path, descriptor, used=0)
        try:
            reach("spool.rotate")
            segment.append([head])
        except OSError:
            segment.discard()
            raise
        return segment

    @classmethod
    def of_reserve(cls, folder: Path, first_seq: int, *, incarnation: bytes) -> "OpenSegment":
        """The reserve, become a segment: takes no new space.

        Raises:
            OSError: there is no reserve, or the disk takes nothing at all.
        """
        path, head = segment_path(folder, first_seq), segment_head(incarnation, first_seq)
        descriptor = os.open(folder / RESERVE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            room = os.fstat(descriptor).st_size
            os.pwrite(descriptor, head, 0)
            (folder / RESERVE).rename(path)
        except OSError:
            os.close(descriptor)
            raise
        return cls(path, descriptor, used=len(head), room=room)

    def append(self, parts: Sequence[bytes]) -> None:
        """Write the parts behind what is there, all or nothing.

        Raises:
            OSError: the disk did not take them; the file is as it was.
        """
        size = sum(map(len, parts))
        # In place, what is behind comes first: a reader that sees a frame's head sees the frame.
        if self.used + size <= self.room:
            place = self.used + size
            for part in reversed(parts):
                place -= len(part)
                _write_all(self._descriptor, [part], offset=place)
        else:
            try:
                _write_all(self._descriptor, parts, offset=self.used)
            except OSError:
                self._cut_back()
                raise
        self.used += size

    def sync(self) -> None:
        """Return once what was appended would survive the host.

        Raises:
            OSError: the disk says that it may not.
        """
        os.fdatasync(self._descriptor)

    def is_in_place(self) -> bool:
        """Whether its path still leads to it."""
        try:
            found, ours = self.path.stat(), os.fstat(self._descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def discard(self) -> None:
        """Close it and leave nothing of it."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Give back what it did not use: nothing more is appended."""
        if self.room > self.used:
            self.room = 0
            self._cut_back()

    def close(self) -> None:
        """Finish it, and close the file."""
        self.finish()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _cut_back(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, max(self.used, self.room))


def make_reserve(folder: Path) -> bool:
    """Put a reserve aside; whether there is one now."""
    path = folder / RESERVE
    if path.exists():
        return True
    draft = path.with_name(f".{RESERVE}")
    try:
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        finally:
            os.close(descriptor)
        draft.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        return False
    return True


def sync_folder(folder: Path) -> None:
    """Return once the folder's names would survive the host; where that is not to be had, at once."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, parts: Sequence[bytes], *, offset: int) -> None:
    wanted = sum(map(len, parts))
    written = os.pwritev(descriptor, parts, offset)
    if written == wanted:
        return
    rest = memoryview(b"".join(parts))
    while written < wanted:
        # A disk with a little space left takes a part; the next write says that it is full.
        written += os.pwrite(descriptor, rest[written:], offset + written)
