"""Whether a run is all there: pure arithmetic on what the ledger, the tables and the declared losses say.

Complete means: every batch number up to the last is there once, every table holds exactly the rows the batches hold,
and what was emitted is what is stored plus what was declared lost. Whatever differs is a sentence that says how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope_proto.columns import SECTIONS
from rankscope_query_api.values import LedgerEntry

LASTING = tuple(section for section in SECTIONS if not section.expires)
"""The sections that can be asked: rows of the others vanish with time, so their absence proves nothing."""


@dataclass(frozen=True, slots=True)
class SectionBalance:
    """Rows of one section over a run: `emitted` is `stored` + `lost` + `missing`."""

    section: str
    emitted: int
    stored: int
    lost: int

    @property
    def missing(self) -> int:
        """Rows nobody accounts for; negative: more are stored than were emitted."""
        return self.emitted - self.stored - self.lost


def balances(entries: Sequence[LedgerEntry]) -> list[SectionBalance]:
    """The balance of each section, in wire order."""
    return [
        SectionBalance(
            section=section.name,
            emitted=sum(entry.emitted[section.name] for entry in entries),
            stored=sum(entry.stored[section.name] for entry in entries),
            lost=sum(entry.lost.get(section.name, 0) for entry in entries),
        )
        for section in LASTING
    ]


def faults(entry: LedgerEntry) -> list[str]:
    """What is wrong with one process' data, a sentence each; nothing: it is complete."""
    found: list[str] = []
    absent = entry.last_seq + 1 - entry.distinct
    if absent:
        ranges = ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in entry.missing)
        found.append(f"{absent} batches are missing: seq {ranges}")
    if entry.batches > entry.distinct:
        found.append(f"{entry.batches - entry.distinct} batches are stored twice")
    for section in LASTING:
        found.extend(_section_faults(entry, section.name))
    return found


def _section_faults(entry: LedgerEntry, section: str) -> list[str]:
    stored, recorded = entry.stored[section], entry.recorded[section]
    emitted, lost = entry.emitted[section], entry.lost.get(section, 0)
    found: list[str] = []
    if stored != recorded:
        found.append(f"{section}: {stored} rows are stored and the ledger's batches hold {recorded}")
    if emitted != stored + lost:
        found.append(f"{section}: {emitted} rows were emitted, {stored} are stored and {lost} declared lost")
    return found
