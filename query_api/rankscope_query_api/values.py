"""What a store is asked with and what it answers: plain values, which know neither SQL nor JSON.

They are what passes between the routes, the arithmetic in the middle and the statements; all are immutable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from rankscope_query_api.answers import Key

Value: TypeAlias = str | int | float | Sequence[str | int | float | None] | None
"""What a bound parameter may be."""

Record: TypeAlias = dict[str, Any]
"""One row by column name, where the columns come from the declaration in `rankscope_proto.columns`."""

Item = TypeVar("Item")

SILENT_NS = 60 * 10**9
"""A process sends a heartbeat every 5 s while a span is open, and its batches every second while it works."""


@dataclass(frozen=True, slots=True)
class Table:
    """The answer to one statement, by columns.

    Attributes:
        names: Names of the columns.
        columns: Their values, all equally long; a time as the ticks of its type since the epoch.
        types: Their ClickHouse types, where the store says them.
    """

    names: Sequence[str]
    columns: Sequence[Sequence[Any]]
    types: Sequence[str] = ()

    def records(self) -> list[Record]:
        """The rows as dictionaries by column name, in order."""
        return [dict(zip(self.names, row, strict=True)) for row in zip(*self.columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Slice(Generic[Item]):
    """Some rows of an ordered list.

    Attributes:
        items: The rows.
        total: Rows of the whole list.
        next: Key of the last row; None: the list ends here.
    """

    items: Sequence[Item]
    total: int
    next: Key | None = None


@dataclass(frozen=True, slots=True)
class RunKey:
    """A run, and the project whose it is."""

    project: str
    run: str


@dataclass(frozen=True, slots=True)
class Process:
    """What one process last said of its run.

    Attributes:
        run_id: The run.
        launch_id: 32 hex digits.
        incarnation: 32 hex digits.
        rank: Global rank; -1: none.
        process_role: A word of `ProcessRole`.
        node: Host name.
        status: A word of `RunStatus`.
        name: Name of the run, for people.
        config: JSON object as text; empty: none.
        command: Command line.
        tags: Tags of the run.
        facts: Host facts.
        started_ns: When it joined, ns since the epoch.
        ended_ns: When it left; None: it has not, as far as is known.
        sealed_ns: When it sealed its last batch, by its own clock.
        heard_ns: When its last batch was received, by the receiver's clock.
        silent_ns: Time since then, in ns.
    """

    run_id: str
    launch_id: str
    incarnation: str
    rank: int
    process_role: str
    node: str
    status: str
    name: str
    config: str
    command: str
    tags: Sequence[str]
    facts: Mapping[str, str]
    started_ns: int
    ended_ns: int | None
    sealed_ns: int
    heard_ns: int
    silent_ns: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as the ledger knows it: batches arrive before any word about the run does."""

    run_id: str
    started_ns: int
    updated_ns: int
    world_size: int
    ranks: int
    launches: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a run.

    Attributes:
        launch_id: 32 hex digits.
        attempt: Its ordinal by time of the first batch, from 0.
        started_ns: Sealing time of its first batch.
        updated_ns: Sealing time of its last batch.
        world_size: Ranks it should have.
        ranks: Ranks whose trainers were heard, ascending.
        rows: Stored rows by section.
    """

    launch_id: str
    attempt: int
    started_ns: int
    updated_ns: int
    world_size: int
    ranks: Sequence[int]
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TraceScope:
    """Where traces are looked for: in a run, or (None) in every run of a project."""

    project: str
    run: str | None


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Which traces are meant; a None does not restrict.

    A trace fits that has one span which is as all of `kind`, `name`, `rank`, the steps, `error_type` and `attributes`
    say, in whose spans each of `terms` occurs, and which itself is as the rest says.

    Attributes:
        kind: Code of a `SpanKind`.
        name: What the span is called, exactly.
        rank: Global rank.
        first_step: Least step or episode.
        last_step: Greatest step or episode.
        error_type: Class of the exception that ended the span.
        attributes: Keys and values that the span has all of; a number fits whose text reads as the same number.
        terms: Each occurs, whatever its case, in a name, id, label or preview of some span.
        status: The trace's status, a word of `summaries.STATUSES`.
        least_ns: Least duration of the trace.
        most_ns: Greatest duration of the trace.
        since_ns: Least start of the trace.
        until_ns: Start of the trace, exclusive.
    """

    kind: int | None = None
    name: str | None = None
    rank: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    error_type: str | None = None
    attributes: Sequence[tuple[str, str]] = ()
    terms: Sequence[str] = ()
    status: str | None = None
    least_ns: int | None = None
    most_ns: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ProfileFilter:
    """Which statistics make up a profile.

    Attributes:
        role: Code of what the tensors are.
        first_step: The least step.
        last_step: The greatest.
        ranks: These ranks; none: all.
        reduction: local or reduced gradients; "": whatever is there, of a gradient the reduced one if there is one.
    """

    role: int
    first_step: int
    last_step: int
    ranks: Sequence[int] = ()
    reduction: str = ""


@dataclass(frozen=True, slots=True)
class TensorFilter:
    """Which rows of `tensor_stats` are meant; a None does not restrict.

    Attributes:
        path: A tensor, or a module: its own tensors and all below it.
        step: Optimizer step.
        rank: Global rank.
        role: Code of a `Role`.
    """

    path: str | None = None
    step: int | None = None
    rank: int | None = None
    role: int | None = None


Digest: TypeAlias = tuple[int, int]
"""A BLAKE2b-128, as two halves of 64 bits."""


@dataclass(frozen=True, slots=True)
class CaptureFilter:
    """Which kept values are meant; a None does not restrict.

    Attributes:
        name: A tensor's path as a glob: `*` any text, `?` one character.
        step: Optimizer step.
        rank: Global rank.
        role: Code of a `Role`.
    """

    name: str | None = None
    step: int | None = None
    rank: int | None = None
    role: int | None = None


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where a chunk of a content can be read.

    Attributes:
        chunk: Which one, from 0.
        chunks: How many the content has.
        incarnation: A process that has sent it, 32 hex digits.
    """

    chunk: int
    chunks: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One rank's times in one step, in ns; a phase that was not traced is 0."""

    step: int
    rank: int
    total_ns: int
    input_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int


WEEK_DAYS = 7
"""Rows expire by whole weeks of sealing."""


@dataclass(frozen=True, slots=True)
class TableSize:
    """How much room one table takes.

    Attributes:
        table: Its name.
        rows: Rows in it, whatever the project.
        size_bytes: What they take on disk, compressed.
        bytes_per_day: What it grows by at the rate of the last day.
        retention_days: Days it keeps rows at least, and up to a week more; None: for good.
    """

    table: str
    rows: int
    size_bytes: int
    bytes_per_day: float
    retention_days: int | None


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk of the store."""

    name: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class StorageState:
    """The store's tables and disks."""

    tables: Sequence[TableSize]
    disks: Sequence[Disk]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What the ledger and the tables say of one incarnation.

    Attributes:
        incarnation: 32 hex digits.
        launch_id: 32 hex digits.
        rank: Global rank; -1: none.
        process_role: A word of `ProcessRole`.
        batches: Rows of the ledger.
        distinct: Distinct batch numbers among them.
        last_seq: Greatest batch number.
        missing: Ranges of batch numbers (first, last) that are not there and not declared lost.
        emitted: Rows emitted by section, as the last batch says, and what was declared lost of batches behind it.
        recorded: Rows the ledger's batches hold, by section.
        stored: Rows the tables hold, by section.
        lost: Rows declared lost, by section.
        ended: Whether the end of its stream is stored.
        heard_ns: When its last batch was received, by the receiver's clock.
        silent_ns: Time since then, in ns.
        causes: Rows declared lost, by section and cause.
        excused: Missing batches that were declared lost.
        is_gone: Whether it is known to have ended, without its last word.
    """

    incarnation: str
    launch_id: str
    rank: int
    process_role: str
    batches: int
    distinct: int
    last_seq: int
    missing: Sequence[tuple[int, int]]
    emitted: Mapping[str, int]
    recorded: Mapping[str, int]
    stored: Mapping[str, int]
    lost: Mapping[str, int]
    ended: bool
    heard_ns: int
    silent_ns: int
    causes: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    excused: int = 0
    is_gone: bool = False
