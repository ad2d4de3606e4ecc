"""The batches of one run: an incarnation of its own in the role of a client, sealed and appended to a spool of its own.

Events of a run belong to one launch, whatever process takes them: its id follows from project and run.
"""

import hashlib
import os
from collections.abc import Sequence

from rankscope._block import Block, Column
from rankscope._clock import Clock
from rankscope._export import SealedBatch
from rankscope._host import boot_id, node_name
from rankscope._identity import Identity
from rankscope._seal import Sealer
from rankscope._settings import Settings
from rankscope._spooling import make_spool
from rankscope.front.book import RunName
from rankscope_proto.identity import uuid7
from rankscope_proto.names import GapCause, ProcessRole, RunStatus


class Stream:
    """Seals and appends the rows of one run.

    Args:
        name: The run.
        settings: Of the agent: where spools lie and where they go.
        clock: Time.

    Raises:
        SpoolError: no spool can be made now.
    """

    def __init__(self, name: RunName, settings: Settings, *, clock: Clock) -> None:
        self._clock = clock
        self._identity = identity_of(name, now_ns=clock.wall_ns())
        self._spool = make_spool(settings, self._identity)
        self._sealer = Sealer(self._identity, clock=clock)
        self._began_ns = clock.wall_ns()
        self._sealer.add(self._standing(RunStatus.RUNNING))
        self.used_ns = self._began_ns

    @property
    def incarnation(self) -> bytes:
        """Whose batches these are."""
        return self._identity.incarnation

    def seal(self, blocks: Sequence[Block]) -> SealedBatch:
        """Seal rows in one batch, the next one; at least one row."""
        for block in blocks:
            for part in self._sealer.parts(block):
                self._sealer.add(part)
        batch = self._sealer.seal()
        if batch is None:
            raise ValueError("nothing to seal: a batch has at least one row")
        return batch

    def append(self, batch: SealedBatch, *, is_last: bool = False) -> bool:
        """Append a batch, to stay through the end of the machine; whether there was room."""
        is_there = self._spool.append(batch, is_last=is_last, urgent=is_last)
        self._spool.sync()
        return is_there

    def say(self, blocks: Sequence[Block]) -> None:
        """Append rows that nobody keeps elsewhere; where there is no room, they are counted as lost."""
        batch = self.seal(blocks)
        if not self.append(batch):
            self._sealer.take_back((batch,), kept=(), cause=GapCause.SPOOL_FULL)

    def end(self) -> None:
        """Append the last word, and let go of the spool."""
        self._sealer.add(self._standing(RunStatus.FINISHED))
        self.append(self.seal((self._sealer.end_of_stream(),)), is_last=True)
        self._spool.close()

    def abandon(self) -> None:
        """Let go of the spool without a last word: what its sums would be is not known."""
        self._spool.close()

    def _standing(self, status: RunStatus) -> Block:
        columns: dict[str, Column] = {
            "status": (status.code,),
            "fact_keys": ("source",),
            "fact_values": ("HTTP ingest",),
            "fact_n": (1,),
            "start": (self._began_ns,),
        }
        if status is not RunStatus.RUNNING:
            columns["end"] = (self._clock.wall_ns(),)
        return Block("run_info", 1, columns)


def identity_of(name: RunName, *, now_ns: int) -> Identity:
    """A new incarnation of this process for a run."""
    text = b"\0".join((b"HTTP ingest", name.project.encode(), name.run.encode()))
    return Identity(
        name.project,
        name.run,
        hashlib.blake2b(text, digest_size=16).digest(),
        uuid7(now_ns, os.urandom(10)),
        rank=-1,
        local_rank=-1,
        node=node_name(),
        pid=os.getpid(),
        boot_id=boot_id(),
        process_role=ProcessRole.CLIENT,
    )
