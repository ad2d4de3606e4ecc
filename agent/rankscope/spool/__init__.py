"""The spool: sealed batches on the node's disk, from their sealing until the store has them.

`SpoolWriter` is the owner's side, `SpoolReader` the sender's. The two share files and no lock: the owner only
appends, the sender only reads, deletes whole segments below the durable seq, and writes how far it is.

Beside the segments the owner keeps one small file, `left_open`, and replaces it as a whole: the spans that are open
now, as rows, for if it dies. Where there is no last word a sender states those that no later batch holds as ended.
"""

from rankscope.spool._damage import Damage
from rankscope.spool._errors import SpoolError, SpoolHeldError
from rankscope.spool._frames import Frame
from rankscope.spool._head import SpoolHead, Trust
from rankscope.spool._locks import FolderLock, Holder
from rankscope.spool._places import default_bytes, file_system_of, is_local
from rankscope.spool._reader import SpoolReader
from rankscope.spool._staging import living, spools, stage_out, was_removed
from rankscope.spool._standing import SENT_MARK, Standing, is_copied, mark_copied
from rankscope.spool._writer import SpoolWriter, refuse_elsewhere

__all__ = [
    "SENT_MARK",
    "Damage",
    "FolderLock",
    "Frame",
    "Holder",
    "SpoolError",
    "SpoolHead",
    "SpoolHeldError",
    "SpoolReader",
    "SpoolWriter",
    "Standing",
    "Trust",
    "default_bytes",
    "file_system_of",
    "is_copied",
    "is_local",
    "living",
    "mark_copied",
    "refuse_elsewhere",
    "spools",
    "stage_out",
    "was_removed",
]
