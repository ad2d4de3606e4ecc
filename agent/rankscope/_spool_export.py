"""Batches into the node's spool: on this machine's disk, whatever becomes of this process.

Promises: `send` waits for nothing but the page cache, and raises nothing that a disk can cause. Delivery is
somebody else's: the agent of the node, a thread of this process, or `rankscope drain`.
"""

from typing import TYPE_CHECKING

from rankscope._export import Exporter, Obstacle, SealedBatch, Upload, Wait
from rankscope.spool import SpoolWriter


class SpoolExporter:
    """Appends batches to a spool that this process owns.

    Args:
        writer: The spool.
        upload: Who sends it from this process; None: somebody else, or nobody.
        waits_for: What a flush waits for.
        keeps_unsent: Whether what cannot be sent now is kept for later on purpose.
    """

    def __init__(
        self,
        writer: SpoolWriter,
        *,
        upload: Upload | None = None,
        waits_for: Wait = "spooled",
        keeps_unsent: bool = False,
    ) -> None:
        self._writer = writer
        self._upload = upload
        self.waits_for: Wait = waits_for
        self.keeps_unsent = keeps_unsent

    @property
    def fullness(self) -> float:
        """How much of the bound is in use; 1.0 also where the disk is full."""
        return self._writer.fullness

    @property
    def is_accepted(self) -> bool:
        """Whether the ingest tier has everything that was appended."""
        accepted = self._writer.accepted if self._upload is None else max(self._upload.accepted, self._writer.accepted)
        return accepted >= self._writer.next_seq

    @property
    def is_durable(self) -> bool:
        """Whether the store has everything that was appended."""
        return self._writer.durable >= self._writer.next_seq

    @property
    def place(self) -> str:
        """The spool's folder."""
        return str(self._writer.folder)

    def send(self, batch: SealedBatch, *, is_last: bool = False, urgent: bool = False) -> bool:
        """Append a batch; False when there is no room."""
        return self._writer.append(batch, is_last=is_last, urgent=urgent)

    def take_obstacle(self) -> Obstacle | None:
        """What is known to stand in the way of sending; whoever asks waits for it, so it is looked for batches now."""
        if self._upload is None:
            return None
        self._upload.wake()  # not in `send`: the sealing thread would wait for the disk that the sender reads
        return self._upload.take_obstacle()

    def sync(self) -> None:
        """Have the disk keep what was appended, also when the machine loses its power."""
        self._writer.sync()

    def leave_open(self, batch: SealedBatch | None) -> None:
        """Have the spans that are open outlive this process."""
        self._writer.leave_open(batch)

    def close(self) -> None:
        """Let go of the spool: whoever sends removes it once the store has everything."""
        self._writer.close()


if TYPE_CHECKING:
    from typing import cast

    _conforms: Exporter = SpoolExporter(cast("SpoolWriter", None))
