"""What a person may want to look at after damage or a refusal: bytes kept aside, within a bound, never sent.

It is a help and no more: on a full disk nothing is kept, and nothing fails for it.
"""

import contextlib
import shutil
from pathlib import Path

from rankscope.spool._head import write_whole

FOLDER = "bad"
MAX_BYTES = 64 * 1024 * 1024
"""Of one spool: four segments. What comes after that is not kept."""

MAX_ROOT_BYTES = 256 * 1024 * 1024
"""Of all spools of a root that are gone. What is oldest makes way: a node lives for longer than anybody looks."""


def keep(folder: Path, name: str, *, data: bytes) -> Path | None:
    """Write bytes into a spool's `bad/`; None where there is no room for them."""
    place = folder / FOLDER / name
    with contextlib.suppress(OSError):
        if not _has_room(folder, len(data)):
            return None
        place.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(place, data)
        return place
    return None


def keep_file(path: Path) -> bool:
    """Move a file of a spool into its `bad/`; False, and it stays, where there is no room for it."""
    with contextlib.suppress(OSError):
        if _has_room(path.parent, path.stat().st_size):
            place = path.parent / FOLDER / path.name
            place.parent.mkdir(mode=0o700, exist_ok=True)
            path.replace(place)
            return True
    return False


def outlive(folder: Path) -> None:
    """Move a spool's `bad/` beside the spools, before the spool is removed: `<root>/bad/<spool>`."""
    kept = folder / FOLDER
    with contextlib.suppress(OSError):
        if kept.is_dir():
            place = folder.parent / FOLDER
            place.mkdir(mode=0o700, exist_ok=True)
            kept.rename(place / folder.name)
            _make_room(place)


def _make_room(place: Path) -> None:
    """Remove what was kept of the spools that are gone longest, down to the bound."""
    held = 0
    for kept in sorted(place.iterdir(), key=lambda kept: kept.stat().st_mtime_ns, reverse=True):
        held += _size(kept)
        if held > MAX_ROOT_BYTES:
            shutil.rmtree(kept, ignore_errors=True)


def _has_room(folder: Path, size: int) -> bool:
    return _size(folder / FOLDER) + size <= MAX_BYTES


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*"))
