"""States, for a process that no longer can, what is lost of its data, and the spans that it left open.

A statement is a batch of its own under an incarnation of its own, put into a spool of its own and sent like any other.
Promise: each is in the store exactly once, whoever dies in between and however many copies of a spool are drained.
For that nothing need be remembered: incarnation, time and words of a statement follow from what it says, so the same
loss is the same batch, which the gateway knows, or the writer finds in the store.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rankscope._block import Block, Column
from rankscope._bounds import NAME, cut
from rankscope._identity import Identity
from rankscope._seal import Sealer
from rankscope.agent.left_open import LeftRows
from rankscope.spool import SpoolError, SpoolHead, SpoolReader, SpoolWriter
from rankscope_proto.identity import uuid7
from rankscope_proto.names import GapCause, GapClass, ProcessRole

STATEMENT_BYTES = 4 * 1024 * 1024

LEFT_OPEN = "left open"
"""Name of the statement of open spans: a process makes one, whatever it says."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is lost of an incarnation.

    Attributes:
        cause: Why.
        seqs: First and last batch concerned; None: not known which.
        rows: Rows lost by section, "" where the section is not known; empty: nothing is known to be lost.
        at_ns: When, on the wall clock.
        detail: For a person.
    """

    cause: GapCause
    seqs: tuple[int, int] | None
    rows: Mapping[str, int]
    at_ns: int
    detail: str = ""

    @property
    def name(self) -> str:
        """What tells it from every other loss of the incarnation."""
        return self.cause.value if self.seqs is None else f"{self.cause.value} {self.seqs[0]}-{self.seqs[1]}"


class Courier:
    """States losses in spools of their own.

    Args:
        root: Where those spools are made: beside the ones concerned.
        any_file_system: Whether `root` may lie on a shared file system.
    """

    def __init__(self, root: Path, *, any_file_system: bool = False) -> None:
        self._root = root
        self._any_file_system = any_file_system

    def state(self, head: SpoolHead, loss: Loss, *, key: str | None) -> None:
        """State a loss; saying it again has no further effect.

        Args:
            head: The process concerned.
            loss: What it lost.
            key: The API key to send with.

        Raises:
            OSError, SpoolError: it cannot be written down.
        """
        identity = _identity(head, loss.name, loss.at_ns)
        self._say([_gaps(head, loss)], head, identity=identity, at_ns=loss.at_ns, key=key)

    def close_spans(self, head: SpoolHead, left: LeftRows, *, key: str | None) -> None:
        """State the spans that a process left open; saying it again has no further effect.

        Args:
            head: The process concerned.
            left: What it left.
            key: The API key to send with.

        Raises:
            OSError, SpoolError: it cannot be written down.
        """
        identity = replace(
            _identity(head, LEFT_OPEN, left.at_ns),
            worker_index=left.worker_index,
            parent_rank=left.parent_rank,
            mesh=left.mesh,
        )
        self._say(left.blocks, head, identity=identity, at_ns=left.at_ns, key=key)

    def _say(
        self, blocks: Sequence[Block], head: SpoolHead, /, *, identity: Identity, at_ns: int, key: str | None
    ) -> None:
        sealer = Sealer(identity, clock=_Moment(at_ns))
        for block in blocks:
            sealer.add(block)
        batch = sealer.seal()
        folder = self._root / identity.incarnation.hex()
        if _is_said(folder):
            return
        own = SpoolHead.of(identity, endpoints=head.endpoints, trust=head.trust, created_ns=at_ns)
        writer = SpoolWriter.create(
            self._root, own, key=key, max_bytes=STATEMENT_BYTES, any_file_system=self._any_file_system
        )
        is_said = batch is not None and writer.append(batch, is_last=True, urgent=True)
        writer.close()
        if not is_said:
            shutil.rmtree(folder, ignore_errors=True)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _is_said(folder: Path) -> bool:
    """Whether the statement lies there whole; half a one, of an agent that died, is taken away."""
    try:
        reader = SpoolReader(folder)
    except SpoolError:
        return False
    is_whole = reader.is_ended
    reader.close()
    if not is_whole:
        shutil.rmtree(folder, ignore_errors=True)
    return is_whole


class _Moment:
    """A clock that stands still: a statement made again has the same bytes."""

    def __init__(self, at_ns: int) -> None:
        self._at_ns = at_ns

    def mono_ns(self) -> int:
        return 0

    def wall_at(self, mono_ns: int) -> int:
        return self._at_ns + mono_ns

    def wall_ns(self) -> int:
        return self._at_ns


def _identity(head: SpoolHead, name: str, at_ns: int, /) -> Identity:
    """Who states what has this name among all that is stated of a process."""
    entropy = hashlib.blake2b(head.incarnation + name.encode(), digest_size=10).digest()
    return Identity(
        head.project,
        head.run_id,
        head.launch_id,
        uuid7(at_ns, entropy),
        rank=head.rank,
        local_rank=head.local_rank,
        world_size=head.world_size,
        node=head.node,
        pid=head.pid,
        boot_id=head.boot_id,
        process_role=ProcessRole.AGENT,
    )


def _gaps(head: SpoolHead, loss: Loss) -> Block:
    rows = dict(sorted(loss.rows.items())) or {"": 0}
    count = len(rows)
    columns: dict[str, Column] = {
        "class": (GapClass.LOST.code,) * count,
        "cause": (loss.cause.value,) * count,
        "data_kind": tuple(rows),
        "count": tuple(rows.values()),
        "start": (loss.at_ns,) * count,
        "end": (loss.at_ns,) * count,
        "detail": (cut(loss.detail, NAME),) * count,
        "incarnation_hi": (int.from_bytes(head.incarnation[:8], "big"),) * count,
        "incarnation_lo": (int.from_bytes(head.incarnation[8:], "big"),) * count,
    }
    if loss.seqs is not None:
        columns["seq_from"], columns["seq_to"] = (loss.seqs[0],) * count, (loss.seqs[1],) * count
    return Block("gaps", count, columns)
