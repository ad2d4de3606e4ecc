"""Whether a run is all there: pure arithmetic on what the ledger, the tables and the declared losses say.

The sums agree where every batch number up to the last is there once or declared lost, every table holds exactly the
rows the batches hold, and what was emitted is what is stored plus what was declared lost. Whatever differs is a
sentence that says how much. But sums know only what arrived: of a process that has not said its last word, batches
that never left it cannot be missed. So a run is complete only where the sums agree and every process said its last
word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rankscope_proto.columns import SECTIONS
from rankscope_proto.names import ProcessRole
from rankscope_query_api.values import SILENT_NS, LedgerEntry

RANGES_SHOWN = 20

LASTING = tuple(section for section in SECTIONS if not section.expires)
"""The sections that can be asked: rows of the others vanish with time, so their absence proves nothing."""


class Completeness(StrEnum):
    """How much of a run is there."""

    COMPLETE = "complete"
    """The sums agree, and every process said its last word."""

    SO_FAR = "so_far"
    """All that arrived is stored; a process that still speaks, or may, has not said its last word."""

    UNFINISHED = "unfinished"
    """All that arrived is stored; a process fell silent without its last word: its last second may be missing."""

    INCOMPLETE = "incomplete"
    """The sums do not agree."""


@dataclass(frozen=True, slots=True)
class SectionBalance:
    """Rows of one section over some processes: `emitted` is `stored` + `lost` + `missing`; `causes` parts `lost`."""

    section: str
    emitted: int
    stored: int
    lost: int
    causes: Mapping[str, int]

    @property
    def missing(self) -> int:
        """Rows nobody accounts for; negative: more are stored than were emitted."""
        return self.emitted - self.stored - self.lost


def state_of(entries: Sequence[LedgerEntry]) -> Completeness:
    """How much of a run is there, of which these are all the processes that were heard."""
    if any(faults(entry) for entry in entries):
        return Completeness.INCOMPLETE
    if all(said_last_word(entry) for entry in entries):
        return Completeness.COMPLETE
    return Completeness.UNFINISHED if any(is_silent(entry) for entry in entries) else Completeness.SO_FAR


def said_last_word(entry: LedgerEntry) -> bool:
    """Whether nothing more is to come of a process.

    A tier writes each statement of its own as the one batch of an incarnation, and so does an agent: that is its last
    word.
    """
    return entry.ended or entry.process_role in (ProcessRole.SERVER, ProcessRole.AGENT)


def is_silent(entry: LedgerEntry) -> bool:
    """Whether a process without a last word is gone: its node's agent says so, or nothing was heard for a minute."""
    return not said_last_word(entry) and (entry.is_gone or entry.silent_ns > SILENT_NS)


def still_speaks(entry: LedgerEntry) -> bool:
    """Whether more of a process may come."""
    return not said_last_word(entry) and not is_silent(entry)


def balances(entries: Sequence[LedgerEntry]) -> list[SectionBalance]:
    """The balance of each section, in wire order."""
    return [
        SectionBalance(
            section=section.name,
            emitted=sum(entry.emitted[section.name] for entry in entries),
            stored=sum(entry.stored[section.name] for entry in entries),
            lost=sum(entry.lost.get(section.name, 0) for entry in entries),
            causes=_causes(entries, section.name),
        )
        for section in LASTING
    ]


def _causes(entries: Sequence[LedgerEntry], section: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in entries:
        for cause, rows in entry.causes.get(section, {}).items():
            found[cause] = found.get(cause, 0) + rows
    return dict(sorted(found.items()))


def faults(entry: LedgerEntry) -> list[str]:
    """What is wrong with one process' data, a sentence each; nothing: its sums agree."""
    found: list[str] = []
    absent = entry.last_seq + 1 - entry.distinct - entry.excused
    if absent:
        shown = entry.missing[:RANGES_SHOWN]
        ranges = ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in shown)
        ranges += ", …" if len(entry.missing) > RANGES_SHOWN else ""
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
