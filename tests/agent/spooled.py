"""What lies in the spools of a folder, as a test asks it."""

from collections import Counter
from pathlib import Path

from rankscope.spool import SpoolReader, spools
from rankscope.testing import rows_of
from rankscope_proto.columns import SECTIONS
from rankscope_proto.names import GapClass
from rankscope_proto.v1.batch_pb2 import Batch


def batches_in(root: Path) -> list[Batch]:
    """The batches of every spool of a root, in order of seq."""
    return [batch for folder in spools(root) for batch in batches_of(folder)]


def batches_of(folder: Path) -> list[Batch]:
    """The batches of one spool, in order of seq."""
    found: list[Batch] = []
    reader = SpoolReader(folder)
    frame = reader.next(0)
    while frame is not None:
        found.append(Batch.FromString(frame.payload))
        frame = reader.next(frame.seq + 1)
    reader.close()
    return found


def rows_in(root: Path, section: str) -> list[dict[str, object]]:
    """The rows of a section in every spool of a root."""
    return [row for batch in batches_in(root) for row in rows_of(batch, section)]


def is_ended(folder: Path) -> bool:
    """Whether a spool's last word is there."""
    reader = SpoolReader(folder)
    try:
        return reader.is_ended
    finally:
        reader.close()


def assert_exact(batches: list[Batch]) -> Counter[str]:
    """Emitted = stored + lost for every section of one incarnation; the rows emitted, by section."""
    stored, lost, emitted = Counter[str](), Counter[str](), Counter[str]()
    for batch in batches:
        for section in SECTIONS:
            stored[section.name] += sum(1 for _ in rows_of(batch, section.name))
        for gap in rows_of(batch, "gaps"):
            if gap["class"] == GapClass.LOST.code:
                lost[str(gap["data_kind"])] += int(str(gap["count"]))
    header = batches[-1].header
    for section in SECTIONS:
        emitted[section.name] = getattr(header, f"emitted_{section.name}")
        assert emitted[section.name] == stored[section.name] + lost[section.name], section.name
    return emitted
