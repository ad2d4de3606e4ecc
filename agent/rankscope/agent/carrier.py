"""Sends every spool below a root: live ones and small ones at once, large backlogs of dead processes a few at a time.

Promises: a trainer that lives waits for no backlog; each spool has one sender on this machine; a spool is removed when
the store has all of it and nobody appends to it any more, and not before.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.agent.adopt import Adopted
from rankscope.agent.complaints import Complaints
from rankscope.agent.courier import Courier
from rankscope.agent.pace import Pace, Road
from rankscope.agent.ways import Recorded, Ways
from rankscope.errors import RankscopeError
from rankscope.spool import SpoolError, SpoolHeldError, SpoolReader, spools

BACKLOGS = 4
"""Large spools of dead processes that are sent at a time. They share what may be ahead of the store, so more of them
hold live data up no longer; with two of them the store had less to do whenever one was waiting for its last rows."""

SMALL_BYTES = 4 * 1024 * 1024
SMALL = 64
"""Small ones that are: the ranks of a short run are gone before anybody looks, and nobody should wait for them."""


@dataclass(frozen=True, slots=True)
class SpoolReport:
    """How one spool stands, for people and programs.

    Attributes:
        incarnation: Hex.
        run_id: The run.
        rank: Global; -1: none.
        is_live: Whether its owner may append.
        accepted: Every seq below it is in the broker.
        durable: Every seq below it is in the store.
        backlog_bytes: Bytes of segments that hold something not durable.
        endpoint: The gateway in use; empty: none yet.
        failure: What stands in the way; empty: nothing.
    """

    incarnation: str
    run_id: str
    rank: int
    is_live: bool
    accepted: int
    durable: int
    backlog_bytes: int
    endpoint: str
    failure: str


class Carrier:
    """Sends the spools of a root.

    Args:
        root: The folder of the spools.
        ways: Where they go.
        any_file_system: Whether the root may lie on a shared file system.
        leaves_living: Whether the spools of living processes are left to them.
        complaints: Says what goes wrong.
    """

    def __init__(
        self,
        root: Path,
        ways: Ways,
        *,
        any_file_system: bool = False,
        leaves_living: bool = False,
        complaints: Complaints | None = None,
    ) -> None:
        self.root = root
        self._ways = ways
        self._courier = Courier(root, any_file_system=any_file_system)
        self._leaves_living = leaves_living
        self._complaints = complaints or Complaints()
        self._roads: dict[tuple[str, ...], Road] = {}
        self._adopted: dict[Path, Adopted] = {}
        self._left: dict[Path, bool] = {}
        self._moved_at = time.monotonic()
        self._is_known = False
        self.removed = 0
        self.held_by_others: dict[Path, str] = {}
        self.unsent: dict[Path, str] = {}

    @property
    def moved_at(self) -> float:
        """Monotonic second of the last progress of any spool."""
        return max([self._moved_at, *(one.sender.moved_at for one in self._adopted.values())])

    @property
    def has_live(self) -> bool:
        """Whether a process appends to one of the spools."""
        return any(not one.reader.owner_is_gone for one in list(self._adopted.values()))

    @property
    def is_through(self) -> bool:
        """Whether the store has all there is; what another process sends counts as not there yet."""
        is_all_begun = self._is_known and not (self._left or self.held_by_others or self.unsent)
        return is_all_begun and all(one.sender.is_delivered() for one in self._senders())

    def tick(self) -> None:
        """Look for spools, begin to send them, and remove those that are done; called about once a second."""
        self._finish()
        self._look()
        self._take_up()

    def wake(self) -> None:
        """Look for new batches now."""
        for one in self._senders():
            one.wake()

    def reports(self) -> list[SpoolReport]:
        """How each spool that is sent stands."""
        return [_report(one) for one in self._senders()]

    @property
    def sent(self) -> int:
        """Spools that are sent now."""
        return len(self._adopted)

    @property
    def waiting(self) -> int:
        """Spools of dead processes whose turn has not come."""
        return len(self._left)

    def close(self) -> None:
        """Stop sending; what is not durable stays."""
        self._finish()
        for one in self._senders():
            one.close()
        self._adopted.clear()

    def _senders(self) -> list[Adopted]:
        return list(self._adopted.values())

    def _finish(self) -> None:
        for folder, one in list(self._adopted.items()):
            try:
                is_over = one.finish()
            except (OSError, SpoolError) as error:
                self._complaints.tell(f"{folder} cannot be ended: {error}", about=f"end {folder}")
                is_over = not folder.exists()
            if is_over:
                one.close()
                del self._adopted[folder]
                self.removed += 1
                self._moved_at = time.monotonic()

    def _look(self) -> None:
        """Adopt what lives, and remember what does not."""
        try:
            found = set(spools(self.root))
        except SpoolError as error:
            self._complaints.tell(str(error), about=f"list {self.root}")
            self._is_known = False
            return
        self._is_known = True
        for folder in {*self._left, *self.held_by_others, *self.unsent} - found:
            self._left.pop(folder, None)
            self.held_by_others.pop(folder, None)
            self.unsent.pop(folder, None)
        # The newest first: what is live does not wait until thousands of old ones are looked at.
        for folder in sorted(found - self._adopted.keys() - self._left.keys(), reverse=True):
            try:
                self._sort(folder)
            except (OSError, SpoolError) as error:
                self.unsent[folder] = f"{folder} cannot be read: {error}; it is left alone"
                self._complaints.tell(self.unsent[folder], about=f"read {folder}")

    def _sort(self, folder: Path) -> None:
        reader = SpoolReader(folder)
        try:
            is_gone = reader.owner_is_gone
            is_large = is_gone and reader.backlog_bytes > SMALL_BYTES
            head = reader.head
        finally:
            reader.close()
        if is_gone:
            self.unsent.pop(folder, None)
            self._left[folder] = is_large
        elif self._leaves_living:
            self.unsent.pop(folder, None)
        elif head.sends_itself:
            self.unsent.pop(folder, None)
            self.held_by_others[folder] = f"{folder} is sent by process {head.pid} itself, as long as that lives"
        else:
            self._adopt(folder)

    def _keys(self, reader: SpoolReader) -> Sequence[str]:
        return self._ways.keys(reader.folder, Recorded.of(reader.head))

    def _take_up(self) -> None:
        """Begin with what dead processes left, the oldest first."""
        large = sum(one.was_left for one in self._senders())
        small = sum(one.reader.owner_is_gone for one in self._senders()) - large
        for folder, is_large in sorted(self._left.items(), key=lambda item: item[0].name):
            has_room = large < BACKLOGS if is_large else small < SMALL
            if has_room and self._adopt(folder, was_left=is_large):
                del self._left[folder]
                large, small = large + is_large, small + (not is_large)

    def _pace(self, reader: SpoolReader) -> Pace:
        # A road to each gateway: one that answers nothing holds nobody up who goes elsewhere.
        return Pace(self._roads.setdefault(self._ways.endpoints(Recorded.of(reader.head)), Road()))

    def _adopt(self, folder: Path, *, was_left: bool = False) -> bool:
        try:
            self._adopted[folder] = Adopted(
                folder,
                connect=lambda reader: self._ways.connection(Recorded.of(reader.head)),
                keys=self._keys,
                courier=self._courier,
                complaints=self._complaints,
                pace=self._pace if was_left else None,
            )
        except SpoolHeldError as error:
            self.held_by_others[folder] = str(error)
            self.unsent.pop(folder, None)
            return False
        except (OSError, RankscopeError) as error:
            self.unsent[folder] = f"{folder} cannot be sent: {error}"
            self._complaints.tell(self.unsent[folder], about=f"adopt {folder}")
            return False
        self.held_by_others.pop(folder, None)
        self.unsent.pop(folder, None)
        self._moved_at = time.monotonic()
        return True


def _report(one: Adopted) -> SpoolReport:
    head, sender = one.reader.head, one.sender
    accepted, durable = sender.stand
    return SpoolReport(
        head.incarnation.hex(),
        head.run_id,
        head.rank,
        is_live=not one.reader.owner_is_gone,
        accepted=accepted,
        durable=durable,
        backlog_bytes=sender.backlog_bytes(),
        endpoint=sender.endpoint,
        failure=one.failure,
    )
