"""Begins to send a spool, wherever an earlier sender of it stopped."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope._connection import Connection
from rankscope.agent.account import Account
from rankscope.agent.complaints import Complaints
from rankscope.agent.courier import Courier
from rankscope.agent.pace import Pace
from rankscope.agent.ports import Way, Who
from rankscope.agent.sender import Sender
from rankscope.agent.window import Stand, Window
from rankscope.spool import SENT_MARK, SpoolReader, is_copied
from rankscope_proto.constructors import MAX_SEQ
from rankscope_proto.failpoints import reach

RESERVED = 256
"""Batches that one look at the disk marks as maybe sent: more than are ever on the way."""


class SentMark:
    """Remembers in the spool up to where a sender of it may have sent, whoever died in between.

    Args:
        folder: The spool's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / SENT_MARK
        self._reserved = -1

    def is_copied(self) -> bool:
        """Whether any batch may have been sent from a copy of the spool, made meanwhile or before."""
        return is_copied(self._folder)

    def below(self, *, owner_is_gone: bool) -> int:
        """Batches below may have been sent by an earlier sender.

        Args:
            owner_is_gone: Then the folder may be a copy, whose first one is sent by somebody else.
        """
        try:
            self._reserved = int(self._path.read_text())
        except (OSError, ValueError):
            return MAX_SEQ + 1 if owner_is_gone or self._path.exists() else 0
        return self._reserved

    def reserve(self, seq: int) -> None:
        """Before `seq` is sent: from now on it may have been.

        Raises:
            OSError: it cannot be written down; then it is not to be sent.
        """
        if seq < self._reserved:
            return
        draft = self._path.with_name(f".{SENT_MARK}.{os.getpid()}")
        try:
            draft.write_text(str(seq + RESERVED))
            draft.replace(self._path)
            self._reserved = seq + RESERVED
        except OSError:
            # A full disk takes no number, and sending makes room on it: an empty mark says that any may be sent.
            draft.unlink(missing_ok=True)
            self._path.write_bytes(b"")
            self._reserved = MAX_SEQ + 1


class Adopted:
    """A spool that this process sends.

    Args:
        folder: The spool's folder.
        connect: The way to a gateway; asked at each attempt.
        keys: API keys to try, in order; asked at each attempt; by default the spool's own.
        courier: Carries statements of losses; None: they go beside the spool.
        complaints: Says what goes wrong.
        pace: Of a large backlog, which makes way for what is live; None: as fast as it is taken.

    Raises:
        SpoolHeldError: another process sends it.
        SpoolError: it is no spool, or cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        connect: Callable[[SpoolReader], Connection],
        keys: Callable[[SpoolReader], Sequence[str]] = lambda reader: [reader.key] if reader.key else [],
        courier: Courier | None = None,
        complaints: Complaints | None = None,
        pace: Callable[[SpoolReader], Pace] | None = None,
    ) -> None:
        self.folder = folder
        self.was_left = pace is not None
        self.reader = reader = SpoolReader(folder)
        reader.hold()
        reach("agent.adopt")
        self._account = Account(reader, courier or Courier(folder.parent))
        mark = SentMark(folder)
        head = reader.head
        self.sender = Sender(
            reader,
            Who(head.project, head.run_id, head.incarnation),
            way=Way(lambda: connect(reader), lambda: keys(reader), complaints or Complaints()),
            window=Window(
                Stand(reader.accepted, reader.durable),
                again_below=mark.below(owner_is_gone=reader.owner_is_gone),
                pace=pace and pace(reader),
            ),
            losses=self._account,
            marks=mark,
        )

    @property
    def failure(self) -> str:
        """What stands in the way of sending, in words; "" where nothing does."""
        return "" if self.sender.fault is None else str(self.sender.fault.error)

    def wake(self) -> None:
        """Look for new batches now."""
        self.sender.wake()

    def finish(self) -> bool:
        """Remove the spool, where its owner is gone and the store has all of it; whether it is removed.

        Raises:
            OSError, SpoolError: that its end is not known cannot be stated now.
        """
        if not self.reader.owner_is_gone or not self.sender.is_delivered():
            return False
        self.sender.close()
        self._account.close()
        is_removed = self.reader.remove()
        self.reader.close()
        return is_removed

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop sending; what is not durable stays in the spool."""
        self.sender.close(timeout_s)
        self.reader.close()


def adopt(folder: Path, *, connect: Callable[[], Connection]) -> Adopted:
    """Send a spool from threads of this process, until it is closed.

    Args:
        folder: The spool's folder.
        connect: The way to a gateway; asked at each attempt, in the sending thread.

    Raises:
        SpoolHeldError: another process sends it.
        SpoolError: it is no spool, or cannot be written.
    """
    return Adopted(folder, connect=lambda _: connect())
