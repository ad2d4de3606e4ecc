"""Sends what the workers of a rank spool, from the rank's own process: where no agent does, nobody else would.

A worker that was forked from a process that uses gRPC cannot send (its first call would hang), and one that was killed
cannot any more. Promises: each spool has one sender; one that cannot be sent keeps no other from it; what is not sent
when the rank ends stays for `rankscope drain`; whatever the disk does, nothing of it is raised into the training.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rankscope._connection import Connection
from rankscope._identity import Identity
from rankscope.agent.adopt import Adopted, adopt
from rankscope.spool import SpoolError, SpoolHeldError, SpoolReader, spools
from rankscope_proto.names import ProcessRole

LOOK_S = 0.5
"""How often new spools are looked for: workers live for seconds at least."""

ASK_S = 0.02
"""How often it is asked, at the end, whether all is sent."""

CLOSE_S = 0.2
"""What the thread of a sender gets to end."""

logger = logging.getLogger("rankscope")


class WorkerSpools:
    """Sends the spools of a rank's workers from threads of this process.

    Args:
        root: The folder of the spools.
        identity: The rank's process.
        connect: The way to a gateway; asked at each attempt.
    """

    def __init__(self, root: Path, identity: Identity, *, connect: Callable[[], Connection]) -> None:
        self._root = root
        self._identity = identity
        self._connect = connect
        self._adopted: dict[Path, Adopted] = {}
        self._foreign: set[Path] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-workers", daemon=True)
        self._thread.start()

    def close(self, deadline: float) -> None:
        """Send what is left until then; the rest stays.

        Args:
            deadline: Monotonic second.
        """
        self._closed.set()
        self._thread.join(max(CLOSE_S, deadline - time.monotonic()))
        if self._thread.is_alive():
            return  # in a call of the disk: it ends with the process
        self._tick()
        while self._adopted and time.monotonic() < deadline:
            self._finish()
            time.sleep(ASK_S)
        for folder, one in self._adopted.items():
            _close(folder, one)

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            self._tick()

    def _tick(self) -> None:
        self._finish()
        try:
            found = spools(self._root)
        except SpoolError as error:
            _put_off(self._root, error)
            return
        for folder in found:
            try:
                if folder not in self._adopted and folder not in self._foreign and self._is_ours(folder):
                    self._adopt(folder)
            except (OSError, SpoolError) as error:
                _put_off(folder, error)

    def _finish(self) -> None:
        for folder, one in list(self._adopted.items()):
            if _is_over(folder, one):
                _close(folder, one)
                del self._adopted[folder]

    def _is_ours(self, folder: Path) -> bool:
        """Whether it is of a worker of this rank, in this launch, that does not send it itself now."""
        reader = SpoolReader(folder)
        try:
            head, own = reader.head, self._identity
            of_this_rank = (head.run_id, head.launch_id, head.rank) == (own.run_id, own.launch_id, own.rank)
            if not of_this_rank or head.process_role != ProcessRole.WORKER.code:
                self._foreign.add(folder)
                return False
            return not head.sends_itself or reader.owner_is_gone
        finally:
            reader.close()

    def _adopt(self, folder: Path) -> None:
        try:
            self._adopted[folder] = adopt(folder, connect=self._connect)
        except SpoolHeldError:
            return  # somebody drains the folder


def _is_over(folder: Path, one: Adopted) -> bool:
    try:
        return not folder.exists() or one.finish()
    except (OSError, SpoolError) as error:
        _put_off(folder, error)
        return False


def _close(folder: Path, one: Adopted) -> None:
    try:
        one.close(CLOSE_S)
    except OSError as error:
        _put_off(folder, error)


def _put_off(place: Path, error: Exception) -> None:
    logger.debug("%s, with spools of workers, is looked at again: %s", place, error)
