"""Reads what processes note on where they stand, while they live and after that.

The notes are in memory that is found among a process's open files; once it is open here it stays, whatever becomes of
the process. Reading stops nobody, and nobody who writes can hurt who reads.
"""

import contextlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rankscope import _beacon as layout
from rankscope.spool import SpoolHead

MOST_FILES = 4_096
"""Open files of a process that are looked at."""

TRIES = 3
"""A note that is being written is whole a microsecond later, unless its process died or was stopped in the middle."""

_LINK = f"/memfd:{layout.NAME}"
_OVER = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class GroupNote:
    """Where a process stands in one process group.

    Attributes:
        name: The group.
        enqueued: Number of the collective entered last; 0: none.
        completed: Number of the last one that was over.
        op: Operation of the one entered last; empty: not known.
        shape: Shapes of its input; empty: not known.
        moved_ns: When either number changed last, on the process's monotonic clock.
        is_torn: Whether the note was found half written, so that operation and shapes may be of two collectives.
    """

    name: str
    enqueued: int
    completed: int
    op: str
    shape: str
    moved_ns: int
    is_torn: bool = False

    @property
    def is_under_way(self) -> bool:
        """Whether it is in a collective."""
        return self.enqueued > self.completed


@dataclass(frozen=True, slots=True)
class Notes:
    """What a process noted.

    Attributes:
        incarnation: Of the process.
        sealer: Native id of its sealing thread; 0: it has not begun.
        beat_ns: When that beat last, on its monotonic clock; 0: never.
        is_ended: Whether it says nothing more.
        step: The step begun last; None: none was.
        step_ns: When that began or ended.
        phase: Code of the phase that was open at the beat; 0: none was.
        groups: The groups it used, in order of their first use.
    """

    incarnation: bytes
    sealer: int
    beat_ns: int
    is_ended: bool
    step: int | None
    step_ns: int
    phase: int
    groups: tuple[GroupNote, ...]

    @property
    def moved_ns(self) -> int:
        """When a step or a collective began or ended last, on its monotonic clock; 0: none did so far."""
        return max([self.step_ns, *(group.moved_ns for group in self.groups)])

    @property
    def is_in_collective(self) -> bool:
        """Whether a collective is under way."""
        return any(group.is_under_way for group in self.groups)


class BeaconFile:
    """The open notes of one process.

    Args:
        descriptor: Of the memory; closed with this.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def of(cls, head: SpoolHead) -> Self | None:
        """Open the notes of a process of this node.

        Returns:
            None: it keeps none, has not begun them, or may not be looked at.
        """
        files = Path(f"/proc/{head.pid}/fd")
        try:
            with os.scandir(files) as entries:
                names = [entry.name for _, entry in zip(range(MOST_FILES), entries, strict=False)]
        except OSError:
            return None
        for name in names:
            found = cls._opened(files / name)
            if found is None:
                continue
            notes = found.read()
            if notes is not None and notes.incarnation == head.incarnation:
                return found
            found.close()
        return None

    @classmethod
    def _opened(cls, path: Path) -> Self | None:
        with contextlib.suppress(OSError):
            if os.readlink(path).startswith(_LINK):  # noqa: PTH115  # Path.readlink makes a Path of "/memfd:… (deleted)"
                return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return None

    def read(self) -> Notes | None:
        """What is noted now; None: nothing so far."""
        notes = None
        for _ in range(TRIES):
            try:
                notes = notes_of(os.pread(self._descriptor, layout.SIZE, 0))
            except OSError:
                return None
            if notes is None or not any(group.is_torn for group in notes.groups):
                return notes
        return notes

    def close(self) -> None:
        """Let go of the memory."""
        os.close(self._descriptor)


def notes_of(data: bytes) -> Notes | None:
    """The notes in the bytes of a beacon; None: it has not begun, or is none."""
    if len(data) != layout.SIZE:
        return None
    magic, incarnation, sealer = layout.HEAD.unpack_from(data)
    if magic != layout.MAGIC:
        return None
    words = memoryview(data).cast("q")
    step = words[layout.STEP]
    return Notes(
        incarnation,
        sealer,
        words[layout.BEAT],
        is_ended=words[layout.ENDED] == 1,
        step=step if step >= 0 else None,
        step_ns=words[layout.STEP_AT],
        phase=words[layout.PHASE],
        groups=tuple(_groups(data)),
    )


def _groups(data: bytes) -> list[GroupNote]:
    found: list[GroupNote] = []
    for number in range(layout.GROUPS):
        place = layout.GROUPS_AT + number * layout.GROUP_BYTES
        name = _text(data[place : place + layout.GROUP_NAME])
        if not name:
            break
        first = place + layout.GROUP_NAME
        found.append(_group(name, _voice(data, first, name), _voice(data, first + layout.VOICE_BYTES, name)))
    return found


def _voice(data: bytes, place: int, name: str, /) -> GroupNote:
    enqueued, at_ns, op, shape, again = layout.NOTE.unpack_from(data, place)
    completed, over_ns = _OVER.unpack_from(data, place + layout.NOTE.size)
    is_torn = enqueued != again
    return GroupNote(name, enqueued, completed, _text(op), _text(shape), max(at_ns, over_ns), is_torn=is_torn)


def _group(name: str, called: GroupNote, recorded: GroupNote, /) -> GroupNote:
    """One note of what calls and torch's recorder say: neither sees every collective."""
    later = recorded if recorded.enqueued > called.enqueued else called
    return GroupNote(
        name,
        later.enqueued,
        max(called.completed, recorded.completed),
        later.op,
        later.shape,
        max(called.moved_ns, recorded.moved_ns),
        is_torn=later.is_torn,
    )


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode("utf-8", "replace")
