"""The data folder: who holds it, where each part keeps its files, where the sockets lie.

One process may hold a folder, because chDB opens a path once. The lock is a `flock`, so it ends with its holder
however that ends, and the holder's process id is in the file, so that the second one can name it.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rankscope.up._errors import FolderHeldError, UpError

SOCKET_PATH_LIMIT = 100
"""A unix socket's path may have 108 bytes on Linux; some are left for the name in the folder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a data folder; `pid` is None when it has not written it yet."""

    pid: int | None
    command: str


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

    def holder(self) -> Holder | None:
        """Who holds the folder now, or None."""
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return _holder_in(descriptor)
        finally:
            os.close(descriptor)
        return None

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the folder.

        Raises:
            FolderHeldError: another process holds it.
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take(descriptor, self.path)
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


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder_in(descriptor)
        raise FolderHeldError(folder, pid=holder.pid, command=holder.command) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _holder_in(descriptor: int) -> Holder:
    text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    if not text.isdigit():
        return Holder(pid=None, command="")
    return Holder(pid=int(text), command=_command_of(int(text)))


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
