"""Which processes with a spool below a root live now: the ones that this node's agent can say something about.

Promises: a folder is read once; what cannot be read is left out, since whoever sends it complains of it.
"""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from rankscope._host import process_space
from rankscope.spool import SpoolError, SpoolHead, SpoolReader, spools
from rankscope_proto.names import ProcessRole

OF_AGENTS = {ProcessRole.AGENT.code, ProcessRole.CLIENT.code}
"""Roles of streams whose owner is an agent: its own, and those of runs whose events come over HTTP."""


class Launch(NamedTuple):
    """One start of a run.

    Attributes:
        project: The unit of access.
        run_id: The run.
        launch_id: 16 bytes.
    """

    project: str
    run_id: str
    launch_id: bytes

    @classmethod
    def of(cls, head: SpoolHead) -> Self:
        """The launch of a process."""
        return cls(head.project, head.run_id, head.launch_id)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A process that lives and has a spool here; agents are none, nor are the streams that they keep for others.

    Attributes:
        folder: Its spool.
        head: Who it is.
        is_near: Whether its process id means here what it means there: one boot, one pid namespace.
        key: The API key that its rows are sent with.
    """

    folder: Path
    head: SpoolHead
    is_near: bool
    key: str | None = field(default=None, repr=False)

    @property
    def launch(self) -> Launch:
        """The launch that it belongs to."""
        return Launch.of(self.head)


class Neighbours:
    """Looks for them.

    Args:
        root: The folder of the spools.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._space = process_space()
        self._living: dict[Path, tuple[Neighbour, SpoolReader]] = {}
        self._others: set[Path] = set()

    def look(self) -> tuple[Neighbour, ...]:
        """Those that live now, oldest process start first; as before where the disk does not say."""
        with contextlib.suppress(SpoolError):
            found = spools(self._root)
            self._others.intersection_update(found)
            for folder in found:
                if folder not in self._living and folder not in self._others:
                    self._meet(folder)
        for folder, (_, reader) in list(self._living.items()):
            if _is_gone(reader):
                self._leave(folder)
        return tuple(neighbour for neighbour, _ in self._living.values())

    def close(self) -> None:
        """Close the files."""
        for folder in list(self._living):
            self._leave(folder)

    def _meet(self, folder: Path) -> None:
        try:
            reader = SpoolReader(folder)
        except (OSError, SpoolError):
            return  # it is being made, or somebody else complains
        if reader.head.process_role in OF_AGENTS or _is_gone(reader):
            reader.close()
            self._others.add(folder)
            return
        is_near = bool(self._space) and reader.head.process_space == self._space
        self._living[folder] = Neighbour(folder, reader.head, is_near, reader.key), reader

    def _leave(self, folder: Path) -> None:
        _, reader = self._living.pop(folder)
        reader.close()
        self._others.add(folder)


def _is_gone(reader: SpoolReader) -> bool:
    try:
        return reader.owner_is_gone
    except (OSError, SpoolError):
        return False  # it is asked again in a second
