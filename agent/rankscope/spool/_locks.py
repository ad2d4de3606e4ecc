"""One holder of a folder at a time, and a name for it when another one asks.

A lock of the kernel's ends with its process, however that ended. Its file also says who took it, with host and
boot: for the message to who is refused, and for file systems without locks, where a file that only one can make
stands in. Promises: a second holder is refused with a sentence; nothing ever waits; a forked child holds nothing.
"""

import contextlib
import errno
import fcntl
import json
import os
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from rankscope._host import boot_id, is_alive, node_name, process_start
from rankscope.spool._errors import SpoolError, SpoolHeldError

NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ESTALE, errno.EINVAL}
"""What flock says where there are no locks: NFS without a lock daemon, Lustre mounted without `flock`, FUSE."""

Flock = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who took a lock.

    Attributes:
        node: Host name.
        boot_id: Boot of the host.
        pid: Process.
        process_start: When it started, in clock ticks since boot; -1: not known.
    """

    node: str
    boot_id: str
    pid: int
    process_start: int

    @classmethod
    def here(cls) -> "Holder":
        """This process."""
        pid = os.getpid()
        started = process_start(pid)
        return cls(node_name(), boot_id(), pid, -1 if started is None else started)

    @classmethod
    def read(cls, path: Path) -> "Holder | None":
        """Who a lock's file names; None when nobody, or nothing that can be read."""
        try:
            fields = cast("dict[str, object]", json.loads(path.read_text()))
            texts = [str(fields[name]) for name in ("node", "boot_id")]
            numbers = [int(str(fields[name])) for name in ("pid", "process_start")]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return cls(texts[0], texts[1], numbers[0], numbers[1])

    @property
    def is_gone(self) -> bool:
        """Whether the process surely runs no more: this host's, of an earlier boot or dead.

        Of another host nothing is known.
        """
        if self.node != node_name():
            return False
        if self.boot_id != boot_id():
            return True
        return not is_alive(self.pid) or process_start(self.pid) not in {self.process_start, None}


class FolderLock:
    """A lock of one file.

    Args:
        path: The file; made when it is not there.
        flock: The kernel's call.
    """

    def __init__(self, path: Path, *, flock: Flock = fcntl.flock) -> None:
        self._path = path
        self._flock = flock
        self._descriptor: int | None = None
        self._stand_in: Path | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None or self._stand_in is not None

    def take(self) -> None:
        """Take the lock; nothing happens when this object holds it.

        Raises:
            SpoolHeldError: another one holds it.
            SpoolError: the file cannot be made.
        """
        if self.is_held:
            return
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            is_read_only = error.errno == errno.EROFS
            advice = "copy its folder to a disk that can be written" if is_read_only else "is its folder yours?"
            raise SpoolError(f"{self._path} cannot be written: {error.strerror}; {advice}") from error
        try:
            self._flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            self._take_without_locks(error)
            return
        self._descriptor = descriptor
        _live.add(self)
        _write_holder(descriptor)

    def moved(self, path: Path) -> "FolderLock":
        """The same lock, after its folder got another name."""
        self._path = path
        return self

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        stand_in, self._stand_in = self._stand_in, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.truncate(descriptor, 0)
            os.close(descriptor)
        if stand_in is not None:
            stand_in.unlink(missing_ok=True)

    def is_free(self) -> bool:
        """Whether nobody holds it; tried, without keeping it."""
        if self.is_held:
            return False
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            self._flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in NO_LOCKS and not _is_held_by_file(self._place)
        finally:
            os.close(descriptor)
        return True

    @property
    def _place(self) -> Path:
        return self._path.with_name(self._path.name + ".held")

    def _take_without_locks(self, error: OSError) -> None:
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            raise _held(self._path, Holder.read(self._path)) from error
        if error.errno not in NO_LOCKS:
            raise SpoolError(f"{self._path} cannot be locked: {error.strerror}") from error
        if _is_held_by_file(self._place):
            raise _held(self._place, Holder.read(self._place))
        self._place.unlink(missing_ok=True)  # of a process that is gone
        try:
            descriptor = os.open(self._place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise _held(self._place, Holder.read(self._place)) from None
        _write_holder(descriptor)
        os.close(descriptor)
        self._stand_in = self._place
        _live.add(self)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's alone."""
        descriptor, self._descriptor, self._stand_in = self._descriptor, None, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _write_holder(descriptor: int) -> None:
    # The lock holds whatever the disk says: a name is a help to who is refused, no more.
    with contextlib.suppress(OSError):
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(Holder.here())).encode(), 0)


def _is_held_by_file(place: Path) -> bool:
    holder = Holder.read(place)
    return place.exists() if holder is None else not holder.is_gone


def _held(path: Path, holder: Holder | None) -> SpoolHeldError:
    if holder is None:
        return SpoolHeldError(f"{path.parent} is held by another process; wait for its end, or end it")
    return SpoolHeldError(
        f"{path.parent} is held by process {holder.pid} on {holder.node} (boot {holder.boot_id[:8]}); "
        f"wait for its end, or end it; if it is gone for good, remove {path}"
    )


_live: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


def _forget_in_child() -> None:
    for lock in list(_live):
        lock.forget()


os.register_at_fork(after_in_child=_forget_in_child)
