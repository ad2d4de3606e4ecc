"""The data folder: who holds it, where each part keeps its files, where the sockets lie.

One process may hold a folder, because chDB opens a path once. The lock is a `flock`, so it ends with its holder
however that ends, and the holder's process id is in the file, so that the second one can name it. A command that
reads a folder holds it for seconds, so who comes second waits for it; a server holds it for good.
"""

import fcntl
import hashlib
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rankscope._host import is_alive
from rankscope.up._errors import FolderHeldError, UpError

READER_PATIENCE_S = 15.0
"""How long to wait for a reader: opening the store and asking takes 2 to 5 s, and several may be in line."""

INTERVAL_S = 0.05

READING = "reading"

SOCKET_PATH_LIMIT = 100
"""A unix socket's path may have 108 bytes on Linux; some are left for the name in the folder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a data folder.

    Attributes:
        pid: its id; None when it has not written it yet.
        command: its command line.
        reads: it only reads what is kept, and will soon be done.
    """

    pid: int | None
    command: str
    reads: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether it holds the folder for good: it is no reader, and what the lock says is not of the one before."""
        return self.pid is not None and not self.reads and is_alive(self.pid)


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Paths below one data folder."""

    path: Path

    @property
    def store(self) -> Path:
        """ClickHouse's folder; chDB also writes a cache where it runs, so its owner works inside."""
        return self.path / "store"

    @property
    def broker(self) -> Path:
        """The broker's append-only file."""
        return self.path / "broker"

    @property
    def lock(self) -> Path:
        """The file whose lock means "held"."""
        return self.path / "lock"

    def log(self, part: str) -> Path:
        """The log of a part that runs out of sight."""
        return self.path / f"{part}.log"

    def open_log(self, part: str) -> BinaryIO:
        """A part's log, begun anew, for this user only: what a training prints may be private."""
        descriptor = os.open(self.log(part), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)  # an older version made it for all to read
        return os.fdopen(descriptor, "wb")

    def prepare(self) -> None:
        """Make the folder and those inside it, readable by this user only.

        Raises:
            UpError: the folder cannot be made or written.
        """
        try:
            for folder in (self.path, self.store, self.broker):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UpError(
                f"the data folder {self.path} cannot be made: {error.strerror or error}",
                hint="name a folder that you can write with --home or RANKSCOPE_HOME",
            ) from error
        if not os.access(self.path, os.W_OK):
            raise UpError(
                f"the data folder {self.path} cannot be written",
                hint="name a folder that you can write with --home or RANKSCOPE_HOME",
            )

    def exposure(self) -> str:
        """One sentence where others can write the folder, and so replace what is in it; else ""."""
        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except OSError:
            return ""
        if not mode & (stat.S_IWGRP | stat.S_IWOTH):
            return ""
        who = "every user" if mode & stat.S_IWOTH else "its group"
        remedy = f"chmod go-w {shlex.quote(str(self.path))}"
        return f"the data folder {self.path} can be written by {who} (mode {mode:04o}): {remedy}"

    def holder(self) -> Holder | None:
        """Who holds the folder now, or None."""
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return None if _locked(descriptor) else _holder_in(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def held(self, *, reads: bool = False, patience_s: float = READER_PATIENCE_S) -> Generator[None]:
        """Hold the folder, waiting for readers of it.

        Args:
            reads: this process only reads what is kept, and lets go soon.
            patience_s: how long to wait for a reader to let go.

        Raises:
            FolderHeldError: another process holds it, for good or for longer than that.
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take(descriptor, self.path, patience_s=patience_s)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {READING if reads else ''}".rstrip().encode() + b"\n", 0)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def socket_folder(self) -> Generator[Path]:
        """A short folder for unix sockets, the same for one data folder each time, removed at the end.

        The name is derived, not random: what a killed process leaves is used again instead of piling up.
        """
        folder = _own_folder(_short_temporary_folder() / self._socket_folder_name())
        try:
            yield folder
        finally:
            _remove_flat(folder)

    def _socket_folder_name(self) -> str:
        digest = hashlib.blake2b(os.fsencode(self.path.resolve()), digest_size=5).hexdigest()
        return f"rankscope-{os.getuid()}-{digest}"


def _take(descriptor: int, folder: Path, *, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not _locked(descriptor):
        holder = _holder_in(descriptor)
        if holder.is_settled or time.monotonic() > deadline:
            raise FolderHeldError(folder, pid=holder.pid, command=holder.command, reads=holder.reads)
        time.sleep(INTERVAL_S)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder_in(descriptor: int) -> Holder:
    pid, _, purpose = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip().partition(" ")
    if not pid.isdigit():
        return Holder(pid=None, command="")
    return Holder(pid=int(pid), command=_command_of(int(pid)), reads=purpose == READING)


def _command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "of another user or host"
    return " ".join(word.decode("utf-8", "replace") for word in words if word)


def _short_temporary_folder() -> Path:
    folder = Path(tempfile.gettempdir())
    # TMPDIR of a batch job may be longer than a socket's path can be.
    return folder if len(os.fsencode(folder)) < SOCKET_PATH_LIMIT - 40 else Path("/tmp")  # noqa: S108 - a 0700 folder of ours inside


def _own_folder(folder: Path) -> Path:
    """Make `folder` 0700, or take a random one where another user sits on the name."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if folder.is_symlink() or found.st_uid != os.getuid():
            return Path(tempfile.mkdtemp(prefix="rankscope-", dir=folder.parent))
        folder.chmod(0o700)
    return folder


def _remove_flat(folder: Path) -> None:
    for entry in list(folder.iterdir()) if folder.is_dir() else []:
        entry.unlink(missing_ok=True)
    folder.rmdir()
