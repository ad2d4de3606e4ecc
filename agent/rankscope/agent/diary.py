"""What the agent process itself has to say of a launch: a stream of its own, in a spool of its own.

Where processes stand, what the clocks say and what the node's figures are is seen by the agent, and no trainer's. Its
rows come under an incarnation of the agent process, in the role `agent`, and go where the launch's rows go.
Promises: rows are sealed within a second, or at once where asked; a diary is opened by its first row and ends with a
last word; a disk without room costs rows that are counted, and never the agent.
"""

import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope._block import Block
from rankscope._clock import SystemClock
from rankscope._host import boot_id, node_name
from rankscope._identity import Identity
from rankscope._seal import Sealer
from rankscope.agent.complaints import Complaints
from rankscope.agent.neighbours import Launch, Neighbour
from rankscope.spool import SpoolHead, SpoolWriter
from rankscope_proto.identity import uuid7
from rankscope_proto.names import GapCause, ProcessRole

if TYPE_CHECKING:
    from rankscope._export import SealedBatch

SEAL_S = 1.0
"""A row is sealed this long after it was appended, at the latest."""

MAX_BYTES = 16 * 1024 * 1024
"""Bound of a diary's spool: an hour of a node without a gateway."""


class Diary:
    """The rows that the agent has on one launch; made by `Diaries`.

    Args:
        root: The folder of the spools.
        neighbour: A process of the launch: where its rows go, and with which key, ours go too.
        diaries: Seals what is appended here.
        any_file_system: Whether `root` may lie on a shared file system.
    """

    def __init__(self, root: Path, neighbour: Neighbour, *, diaries: "Diaries", any_file_system: bool = False) -> None:
        self._root = root
        self._neighbour = neighbour
        self._diaries = diaries
        self._any_file_system = any_file_system
        self._lock = threading.Lock()
        self._sealer: Sealer | None = None
        self._spool: SpoolWriter | None = None
        self._held: SealedBatch | None = None
        self._is_over = False

    def append(self, block: Block, *, at_once: bool = False) -> None:
        """Take rows; from any thread, raises nothing. Once this or the agent ends they are left out.

        Args:
            block: The rows.
            at_once: Whether to seal them now, with whatever waits.
        """
        if not self._diaries.is_closed:
            self._shielded(lambda: self._lay(block))
            self._diaries.note_rows(self, at_once=at_once)

    def seal(self) -> None:
        """Seal what waits, and append it to the spool; raises nothing."""
        self._shielded(self._seal)

    def end(self) -> None:
        """Say the last word, where anything was said; raises nothing."""
        self._shielded(self._end)

    def _shielded(self, act: Callable[[], None]) -> None:
        try:
            with self._lock:
                act()
        except Exception as error:  # noqa: BLE001  # the thread that seals, and the other launches, go on
            self._diaries.complain(self._neighbour, error)

    def _end(self) -> None:
        self._is_over = True
        spool, sealer = self._spool, self._sealer
        if spool is None or sealer is None:
            return
        self._seal()
        is_whole = self._held is None or spool.append(self._held, urgent=True)
        sealer.add(sealer.end_of_stream())
        batch = sealer.seal()
        if is_whole and batch is not None:
            spool.append(batch, is_last=True, urgent=True)
        spool.close()
        self._spool = self._sealer = self._held = None

    def _lay(self, block: Block) -> None:
        if self._is_over:
            return
        sealer = self._sealer or self._open()
        if not self._has_room():
            sealer.add_lost({block.section: block.count}, cause=GapCause.SPOOL_FULL)
            return
        for part in sealer.parts(block):
            if not sealer.fits(part):
                self._seal()
            sealer.add(part)
            if sealer.is_full:
                self._seal()

    def _open(self) -> Sealer:
        head = self._neighbour.head
        clock = SystemClock()  # anew: a wall clock that was set meanwhile is told as it is now
        identity = _identity(head, clock.wall_ns())
        own = SpoolHead.of(identity, endpoints=head.endpoints, trust=head.trust, created_ns=clock.wall_ns())
        self._spool = SpoolWriter.create(
            self._root,
            own,
            key=self._neighbour.key,
            max_bytes=MAX_BYTES,
            any_file_system=self._any_file_system,
        )
        self._diaries.opened += 1
        self._sealer = sealer = Sealer(identity, clock=clock)
        return sealer

    def _seal(self) -> None:
        if self._sealer is not None and self._has_room():
            self._held = self._sealer.seal()
            self._has_room()

    def _has_room(self) -> bool:
        """Whether nothing waits for room; one batch may, and rows that come meanwhile are counted as lost."""
        if self._held is not None and self._spool is not None and self._spool.append(self._held):
            self._held = None
        return self._held is None


class Diaries:
    """The diaries of a root, one for each launch; a thread of its own seals what they hold.

    Args:
        root: The folder of the spools.
        complaints: Says what goes wrong.
        any_file_system: Whether `root` may lie on a shared file system.

    Attributes:
        is_closed: Whether no more rows are taken.
        opened: Diaries begun so far.
    """

    def __init__(self, root: Path, *, complaints: Complaints | None = None, any_file_system: bool = False) -> None:
        self._root = root
        self._complaints = complaints or Complaints()
        self._any_file_system = any_file_system
        self._diaries: dict[Launch, Diary] = {}
        self._changed = threading.Condition()
        self._waiting: dict[Diary, None] = {}
        self.opened = 0
        self._is_urgent = self.is_closed = False
        self._thread = threading.Thread(target=self._run, name="rankscope-diary", daemon=True)
        self._thread.start()

    def of(self, neighbour: Neighbour) -> Diary:
        """The diary of a process's launch, to be asked for each time; nothing is written before its first row."""
        with self._changed:
            found = self._diaries.get(neighbour.launch)
            if found is None:
                found = Diary(self._root, neighbour, diaries=self, any_file_system=self._any_file_system)
                self._diaries[neighbour.launch] = found
            return found

    def keep(self, launches: Collection[Launch]) -> None:
        """End the diaries of all other launches."""
        with self._changed:
            over = [self._diaries.pop(launch) for launch in self._diaries.keys() - set(launches)]
            for diary in over:
                self._waiting.pop(diary, None)
        for diary in over:
            diary.end()

    def close(self) -> None:
        """End every diary."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        self._thread.join(SEAL_S)
        self.keep(())

    def note_rows(self, diary: Diary, *, at_once: bool) -> None:
        """A diary holds rows that are to be sealed."""
        with self._changed:
            self._waiting[diary] = None
            self._is_urgent |= at_once
            self._changed.notify_all()

    def complain(self, neighbour: Neighbour, error: Exception) -> None:
        """Say that a diary cannot be kept."""
        run = neighbour.head.run_id
        self._complaints.tell(f"nothing can be said of run {run} from here: {error}", about=f"diary {run}")

    def _run(self) -> None:
        while self._await_rows():
            with self._changed:
                self._changed.wait_for(lambda: self.is_closed or self._is_urgent, SEAL_S)
                waiting, self._waiting, self._is_urgent = list(self._waiting), {}, False
            for diary in waiting:
                diary.seal()

    def _await_rows(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or self._waiting)
            return not self.is_closed


def _identity(head: SpoolHead, now_ns: int, /) -> Identity:
    return Identity(
        head.project,
        head.run_id,
        head.launch_id,
        uuid7(now_ns, os.urandom(10)),
        rank=-1,
        local_rank=-1,
        world_size=head.world_size,
        node=node_name(),
        pid=os.getpid(),
        boot_id=boot_id(),
        process_role=ProcessRole.AGENT,
    )
