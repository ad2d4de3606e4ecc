"""Are the rows of a batch in the store? Asked of every table, by count, before a doubtful batch is inserted.

A batch is present where every table that its views fill has as many rows of it as it has; the
ledger alone proves nothing, because a failed insert may have reached it and nothing else. Tables
whose rows expire cannot be asked, nor can `trace_index`, which merges rows of many batches.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from google.protobuf.message import DecodeError

from rankscope_ingest.entries import Entry
from rankscope_proto.columns import SECTIONS
from rankscope_proto.v1.batch_pb2 import Batch

ASKED = tuple(section for section in SECTIONS if not section.expires)
"""The sections whose tables can be asked."""
LEDGER = "batches"
AT_ONCE = 250
"""Batches of one question: its text stays far below the store's limit of 256 KiB."""


class Tables(Protocol):
    """The store as this module needs it."""

    async def rows(self, query: str, **parameters: object) -> Sequence[Sequence[object]]:
        """Runs a query."""
        ...


class Found(Enum):
    """What of a batch is in the store."""

    ALL = auto()
    NONE = auto()
    SOME = auto()


@dataclass(frozen=True, slots=True)
class Expected:
    """What a batch must have in the store.

    Attributes:
        project: Its project.
        run_id: Its run.
        week: Its partition: days since 1970-01-01.
        rows: Rows by table, without those where it has none.
    """

    project: str
    run_id: str
    week: int
    rows: Mapping[str, int]

    @classmethod
    def of(cls, entry: Entry) -> "Expected | None":
        """What an entry's payload says; None where it cannot be parsed, and so has nothing in the store."""
        try:
            batch = Batch.FromString(entry.payload)
        except DecodeError:
            return None
        sections = ((section.table, len(getattr(getattr(batch, section.name), section.key))) for section in ASKED)
        rows = {LEDGER: 1, **{table: count for table, count in sections if count}}
        return cls(batch.header.project, batch.header.run_id, batch.header.week, rows)


async def look(tables: Tables, entries: Sequence[Entry]) -> list[Found]:
    """What of each entry is in the store.

    Args:
        tables: The store.
        entries: Any number.

    Returns:
        One answer for each.
    """
    answers: list[Found] = []
    for start in range(0, len(entries), AT_ONCE):
        answers += await _look(tables, entries[start : start + AT_ONCE])
    return answers


async def _look(tables: Tables, entries: Sequence[Entry]) -> list[Found]:
    expected = [Expected.of(entry) for entry in entries]
    pairs = list(zip(entries, expected, strict=True))
    found = {table: await _counts(tables, table, pairs=pairs) for table in _tables(expected)}
    return [_judge(entry, wanted, found=found) for entry, wanted in pairs]


def _tables(expected: Iterable[Expected | None]) -> list[str]:
    return sorted({table for wanted in expected if wanted for table in wanted.rows})


def _judge(entry: Entry, wanted: Expected | None, *, found: Mapping[str, Mapping[tuple[str, int], int]]) -> Found:
    if wanted is None:
        return Found.NONE
    key = (entry.incarnation.hex(), entry.seq)
    counts = [(found[table].get(key, 0), rows) for table, rows in wanted.rows.items()]
    if all(count >= rows for count, rows in counts):
        return Found.ALL
    return Found.SOME if any(count for count, _ in counts) else Found.NONE


async def _counts(
    tables: Tables, table: str, *, pairs: Sequence[tuple[Entry, Expected | None]]
) -> dict[tuple[str, int], int]:
    asked = [(entry, wanted) for entry, wanted in pairs if wanted and table in wanted.rows]
    incarnations = ", ".join(sorted({f"unhex('{entry.incarnation.hex()}')" for entry, _ in asked}))
    seqs = [entry.seq for entry, _ in asked]
    weeks = ", ".join(sorted({f"toDate({wanted.week})" for _, wanted in asked}))
    found = await tables.rows(
        f"""
        SELECT lower(hex(incarnation)), seq, count()
        FROM {table}
        WHERE project IN {{projects:Array(String)}}
          AND run_id IN {{runs:Array(String)}}
          AND week IN ({weeks})
          AND seq BETWEEN {{first:UInt64}} AND {{last:UInt64}}
          AND incarnation IN ({incarnations})
        GROUP BY incarnation, seq
        """,  # noqa: S608 # a table of the declaration, and hex digits
        projects=sorted({wanted.project for _, wanted in asked}),
        runs=sorted({wanted.run_id for _, wanted in asked}),
        first=min(seqs),
        last=max(seqs),
    )
    return {(str(incarnation), int(str(seq))): int(str(count)) for incarnation, seq, count in found}
