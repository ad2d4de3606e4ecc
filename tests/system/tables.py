"""What the tables hold of one run, read as plainly as can be: no view, no query service, no arithmetic in SQL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clickhouse_connect.driver.client import Client

from rankscope_proto.columns import SECTIONS
from rankscope_proto.names import GapClass, ProcessRole
from tests.system.truth import Key

LASTING = tuple(section for section in SECTIONS if not section.expires)
"""Rows of the others vanish with time: their absence proves nothing."""

BATCHES = f"""
SELECT lower(hex(incarnation)), seq, count(), any(process_role),
    {", ".join(f"any(rows_{section.name}), any(emitted_{section.name})" for section in SECTIONS)}
FROM batches WHERE run_id = {{run:String}} GROUP BY incarnation, seq"""

ROWS = """
SELECT lower(hex(incarnation)), seq, count(), uniqExact(idx)
FROM {table} WHERE run_id = {{run:String}} GROUP BY incarnation, seq"""

SUMS = {
    "scalars": "SELECT lower(hex(incarnation)), seq, sum(value) FROM scalars WHERE run_id = {run:String} GROUP BY 1, 2",
    "spans": "SELECT lower(hex(incarnation)), seq, sum(span_id) FROM spans WHERE run_id = {run:String} GROUP BY 1, 2",
}

GAPS = f"""
SELECT lower(hex(incarnation)), seq, idx, incarnation_hi, incarnation_lo, cause, data_kind, count, seq_from, seq_to
FROM gaps WHERE run_id = {{run:String}} AND class = {GapClass.LOST.code}"""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of the ledger table.

    Attributes:
        copies: How often it is there.
        is_trainers: Whether a trainer sealed it, not the agent or a tier of the server.
        rows: By section, as its row says.
        emitted: By section, cumulative.
    """

    copies: int
    is_trainers: bool
    rows: Mapping[str, int]
    emitted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows of one batch in one table, and how many distinct ones."""

    rows: int
    distinct: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows declared lost of an incarnation; `seq_from` is None where no batch is named.

    Two that name the same batches are one: who states a gap may be ended before it notes that it did. Of the
    others each row is one, and `told` (who said it, and where) keeps them apart.
    """

    incarnation: str
    cause: str
    section: str
    rows: int
    seq_from: int | None
    seq_to: int | None
    told: tuple[str, int, int] | None = None

    def covers(self, key: Key) -> bool:
        """Whether it names this batch."""
        if self.seq_from is None or self.seq_to is None or key[0] != self.incarnation:
            return False
        return self.seq_from <= key[1] <= self.seq_to


@dataclass(slots=True)
class Tables:
    """All of it."""

    batches: dict[Key, Batch] = field(default_factory=dict[Key, Batch])
    sections: dict[str, dict[Key, Stored]] = field(default_factory=dict[str, dict[Key, Stored]])
    sums: dict[str, dict[Key, float]] = field(default_factory=dict[str, dict[Key, float]])
    gaps: list[Gap] = field(default_factory=list[Gap])


def tables_of(client: Client, run: str) -> Tables:
    """Reads everything that is stored of a run."""
    tables = Tables()
    for record in _records(client, BATCHES, run):
        incarnation, seq, copies, role, *numbers = record
        names = [section.name for section in SECTIONS]
        tables.batches[incarnation, seq] = Batch(
            copies,
            role == ProcessRole.TRAINER.code,
            dict(zip(names, numbers[0::2], strict=True)),
            dict(zip(names, numbers[1::2], strict=True)),
        )
    for section in LASTING:
        records = _records(client, ROWS.format(table=section.table), run)
        tables.sections[section.name] = {(inc, seq): Stored(rows, distinct) for inc, seq, rows, distinct in records}
    for name, query in SUMS.items():
        tables.sums[name] = {(inc, seq): total for inc, seq, total in _records(client, query, run)}
    tables.gaps = [_gap(record) for record in _records(client, GAPS, run)]
    return tables


def _gap(record: list[Any]) -> Gap:
    sender, seq, idx, high, low, cause, section, count, first, last = record
    concerned = sender if high is None else f"{high:016x}{low:016x}"
    return Gap(concerned, cause, section, count or 0, first, last, (sender, seq, idx) if first is None else None)


def _records(client: Client, query: str, run: str) -> list[list[Any]]:
    return [list(record) for record in client.query(query, parameters={"run": run}).result_rows]
