"""The spans that a process leaves open if it dies now: one file beside the segments, replaced as a whole.

It is a frame as those of the segments are. Its payload holds the spans as the rows they become; its seq says that no
batch below it holds any of them, so whoever states them looks only at what was appended since. Whoever reads it
finds the last one that was written, or none.
"""

import contextlib
from pathlib import Path

from rankscope._export import SealedBatch
from rankscope.spool._frames import FRAME_HEAD, Frame, frame_head, frame_of, read_frame_head
from rankscope.spool._head import write_whole
from rankscope_proto.failpoints import reach

FILE = "left_open"


def replace(folder: Path, batch: SealedBatch | None) -> None:
    """Keep these rows in place of those kept before; None: no span is open.

    Where they cannot be written none are kept: those of before may have ended in batches that are freed by now.
    """
    try:
        if batch is not None:
            reach("spool.leave_open")
            head = frame_head(batch, skipped=0, is_last=False)
            write_whole(folder / FILE, head + batch.payload)
            return
    except OSError:
        pass
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def read(folder: Path, incarnation: bytes) -> Frame | None:
    """The rows that a process left; None: none, or they are damaged.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        data = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None
    head = read_frame_head(data)
    return None if head is None else frame_of(head, data[FRAME_HEAD:], incarnation=incarnation)
