"""How far a spool is delivered: written by its sender, read by its owner."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from rankscope.spool._head import write_whole

FILE = "standing.json"

SENT_MARK = "sent"
"""File in which a sender notes the seq below which batches may have been sent; empty: any may."""

COPIED_MARK = "copied"
"""File that is there where a copy of the spool is, or was: whoever drains it may send any batch. A file of its own,
for the spool's sender writes its mark anew while the copy is made."""


def mark_copied(folder: Path) -> None:
    """Say in a spool that a copy of it may be sent, too.

    Raises:
        OSError: it cannot be written down.
    """
    try:
        (folder / COPIED_MARK).touch(mode=0o600)
    except OSError as error:
        # A full disk may take no new file, and takes another name for one.
        with contextlib.suppress(FileNotFoundError):
            (folder / SENT_MARK).rename(folder / COPIED_MARK)
            return
        raise error


def is_copied(folder: Path) -> bool:
    """Whether a copy of a spool may be sent, too."""
    return (folder / COPIED_MARK).exists()


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the delivery of an incarnation stands.

    Attributes:
        accepted: Every seq below it is in the broker, or declared lost.
        durable: Every seq below it is in the store, or declared lost.
        counted: Seq that `emitted` counts up to, exclusive.
        emitted: Rows of each section emitted by the batches below `counted`: where the segments above are gone,
            what they held is counted from here.
    """

    accepted: int = 0
    durable: int = 0
    counted: int = 0
    emitted: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def read(cls, folder: Path) -> "Standing":
        """What the file says; nothing delivered when it is not there, or says nothing that can be understood.

        Raises:
            OSError: it cannot be read now.
        """
        try:
            values = cast("dict[str, object]", json.loads((folder / FILE).read_text()))
            emitted = cast("dict[str, object]", values["emitted"])
            accepted, durable, counted = (int(str(values[name])) for name in ("accepted", "durable", "counted"))
            return cls(accepted, durable, counted, {section: int(str(rows)) for section, rows in emitted.items()})
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return cls()

    def _fields(self) -> dict[str, object]:
        return {
            "accepted": self.accepted,
            "durable": self.durable,
            "counted": self.counted,
            "emitted": dict(self.emitted),
        }

    def write(self, folder: Path, *, synced: bool = False) -> None:
        """Replace the file.

        Raises:
            OSError: it cannot be written.
        """
        write_whole(folder / FILE, json.dumps(self._fields()).encode(), synced=synced)


class Watched:
    """The standing in a folder, read again when its file was replaced.

    Args:
        folder: The spool.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[int, int] | None = None
        self._standing = Standing()

    def now(self) -> Standing:
        """The standing; costs one look at the file."""
        try:
            found = (self._folder / FILE).stat()
        except OSError:
            return self._standing
        seen = (found.st_mtime_ns, found.st_ino)
        if seen != self._seen:
            with contextlib.suppress(OSError):  # the one seen last, until it can be read
                self._standing = Standing.read(self._folder)
                self._seen = seen
        return self._standing
