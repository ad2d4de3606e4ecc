"""Spools of a node, found in their root, and copied to where they outlive it."""

import contextlib
import os
import shutil
from pathlib import Path

from rankscope.spool._disk import segment_paths, sync_folder
from rankscope.spool._errors import SpoolError
from rankscope.spool._head import FILE
from rankscope.spool._left_open import FILE as LEFT_OPEN
from rankscope.spool._locks import FolderLock
from rankscope.spool._reader import SpoolReader
from rankscope.spool._standing import FILE as STANDING
from rankscope.spool._standing import mark_copied
from rankscope.spool._writer import OWNER_LOCK

HEX = 32


def spools(root: Path) -> list[Path]:
    """The folders of the spools below a root, oldest process start first; none where there is no root.

    Folders that were staged out are named `<node>-<incarnation>`, others `<incarnation>`. A folder of such a name that
    cannot be looked into counts: whoever opens it gets the error, and the others are not held up by it.

    Raises:
        SpoolError: the root cannot be listed now: what is in it is not known.
    """
    try:
        found = [Path(entry.path) for entry in os.scandir(root) if _is_spool(entry)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SpoolError(f"{root} cannot be listed: {error.strerror or error}; is it yours, and readable?") from error
    return sorted(found, key=lambda folder: (folder.name[-HEX:], folder.name))


def _is_spool(entry: "os.DirEntry[str]") -> bool:
    tail = entry.name[-HEX:]
    is_named = len(tail) == HEX and all(digit in "0123456789abcdef" for digit in tail)
    if not is_named or entry.name.startswith("."):
        return False
    folder = Path(entry.path)
    try:
        return (folder / FILE).exists() or bool(segment_paths(folder))
    except NotADirectoryError:
        return False
    except OSError:
        return True


def was_removed(folder: Path) -> bool:
    """Whether a spool is there no more; False where the disk does not say."""
    try:
        return not (folder / FILE).exists()
    except OSError:
        return False


def living(root: Path) -> int:
    """How many processes append to spools below a root.

    Raises:
        SpoolError: the root cannot be listed now.
    """
    return sum(not FolderLock(folder / OWNER_LOCK).is_free() for folder in spools(root))


def stage_out(root: Path, target: Path) -> list[Path]:
    """Copy what nobody appends to any more to a shared folder; `rankscope drain` sends it from any machine.

    Each file is written by one process, synced, and gets its name when it is whole. Copying again adds what is new.
    The key stays where it is.

    Args:
        root: Where the spools lie.
        target: The folder to copy to; made when it is not there.

    Returns:
        The folders in the target that hold something not durable.

    Raises:
        SpoolError: a file cannot be copied; names it. What was copied stays.
    """
    staged: list[Path] = []
    for folder in spools(root):
        reader = SpoolReader(folder)
        place = target / f"{reader.head.node}-{reader.head.incarnation.hex()}"
        try:
            if reader.durable < reader.end_seq:
                _copy_spool(reader, place)
                staged.append(place)
        except OSError as error:
            raise SpoolError(
                f"{folder} cannot be staged out to {place}: {error.strerror or error}; "
                "is the folder there, with space, and yours?"
            ) from error
        finally:
            reader.close()
    return staged


def _copy_spool(reader: SpoolReader, place: Path) -> None:
    # First: an owner that begins a segment and ends between the two would leave that one out of the copy, for good.
    is_gone = reader.owner_is_gone
    paths = segment_paths(reader.folder)
    closed = [*paths, reader.folder / LEFT_OPEN] if is_gone else paths[:-1]
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Whoever drains one of the two may send any of it, which the other's sender has to know before there are two.
    mark_copied(place)
    # Where it cannot be written down nobody can send the original: a sender writes too.
    with contextlib.suppress(OSError):
        mark_copied(reader.folder)
    # The head last: a folder without it is not taken for a spool.
    for path in [*closed, reader.folder / STANDING, reader.folder / FILE]:
        _copy(path, place / path.name)
    sync_folder(place)


def _copy(source: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # freed meanwhile, or never made
        # A standing that is there is of who drains the copy: it is further, or soon will be.
        if target.exists() and (target.name == STANDING or target.stat().st_size == source.stat().st_size):
            return
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        with source.open("rb") as read, draft.open("wb") as written:
            shutil.copyfileobj(read, written, 1024 * 1024)
            written.flush()
            os.fsync(written.fileno())
        draft.replace(target)
