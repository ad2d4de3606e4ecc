"""What the front knows, in one SQLite file: answers given, spans that are not whole yet, batches on their way.

Promises: a transaction is kept whole or not at all, through the end of the process and of the machine; nothing is
forgotten before its time. One thread uses it. SQLite, where a spool is not: halves are looked up and changed, and the
folder is on a local disk (`_spooling.find_root` saw to it).
"""

import contextlib
import os
import sqlite3
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import cast

from rankscope._export import SealedBatch
from rankscope.errors import RankscopeError
from rankscope.front.errors import UnavailableError

VERSION = 1
KEPT_NS = 24 * 3600 * 10**9
"""How long an answer is kept, a span of which nothing is heard, and that a span was written."""

MOST_BYTES = 1024**3
"""Of the file. Beyond it nothing new is taken until spans end, expire or are sent."""

_SCHEMA = (
    "CREATE TABLE runs (id INTEGER PRIMARY KEY, project TEXT NOT NULL, run TEXT NOT NULL, UNIQUE (project, run))",
    """CREATE TABLE answers (
        run INTEGER NOT NULL, key BLOB NOT NULL, digest BLOB NOT NULL, answer TEXT NOT NULL, due INTEGER NOT NULL,
        PRIMARY KEY (run, key)
    ) WITHOUT ROWID""",
    "CREATE INDEX answers_due ON answers (due)",
    """CREATE TABLE spans (
        run INTEGER NOT NULL, trace BLOB NOT NULL, span BLOB NOT NULL,
        state INTEGER NOT NULL, due INTEGER NOT NULL, body TEXT NOT NULL, path TEXT, depth INTEGER,
        incarnation BLOB, seq INTEGER,
        PRIMARY KEY (run, trace, span)
    ) WITHOUT ROWID""",
    "CREATE INDEX spans_due ON spans (state, due)",
    "CREATE INDEX spans_open ON spans (run, due) WHERE state = 0",
    """CREATE TABLE batches (
        incarnation BLOB NOT NULL, seq INTEGER NOT NULL, run INTEGER NOT NULL,
        payload BLOB NOT NULL, digest BLOB NOT NULL, rows INTEGER NOT NULL, week INTEGER NOT NULL,
        PRIMARY KEY (incarnation, seq)
    ) WITHOUT ROWID""",
    "CREATE INDEX spans_batch ON spans (incarnation, seq) WHERE incarnation IS NOT NULL",
    f"PRAGMA user_version = {VERSION}",
)


_SPAN = """
SELECT trace, span, state, due, body, path, depth FROM spans WHERE run = ? AND trace = ? AND span = ?"""
_DUE = """
SELECT trace, span, state, due, body, path, depth, run FROM spans WHERE state = ? AND due <= ? ORDER BY due LIMIT ?"""
_OPEN = """
SELECT trace, span, state, due, body, path, depth FROM spans WHERE state = 0 AND run = ? ORDER BY due DESC LIMIT ?"""
_SEAL = """
UPDATE spans SET state = ?, path = ?, depth = ?, incarnation = ?, seq = ? WHERE run = ? AND trace = ? AND span = ?"""
_REOPEN = "UPDATE spans SET state = ?, incarnation = NULL, seq = NULL WHERE incarnation = ? AND seq = ?"
_WRITTEN = """
UPDATE spans SET state = ?, due = ?, body = '', incarnation = NULL, seq = NULL WHERE incarnation = ? AND seq = ?"""


class BookError(RankscopeError):
    """The file cannot be used at all."""


class State(IntEnum):
    """Where a span stands, and what its `due` means."""

    OPEN = 0
    """No closing event came; due: when it is given up as interrupted."""
    CLOSED = 1
    """It will be written; due: when, whatever is missing then."""
    SEALED = 2
    """It is in a batch that may not be in the spool yet."""
    WRITTEN = 3
    """It is in the spool; due: when it is forgotten that it was."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A span as it is kept.

    Attributes:
        trace: Trace id, 16 bytes.
        span: Span id, 8 bytes.
        state: Where it stands.
        due: ns since the epoch.
        body: What is known of it; empty of a written one.
        path: Its path, once it is in a batch.
        depth: Number of its known ancestors, likewise.
    """

    trace: bytes
    span: bytes
    state: State
    due: int
    body: str
    path: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was given.

    Attributes:
        digest: Of the body it answers.
        text: Its JSON.
    """

    digest: bytes
    text: str


@dataclass(frozen=True, slots=True)
class RunName:
    """A run of a project."""

    project: str
    run: str


class Book:
    """The file.

    Args:
        path: Where it is; made when it is not there.
        most_bytes: Its bound.

    Raises:
        BookError: it cannot be opened, is no such file, or is of another release; names it.
    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._prepare(path)
        except (OSError, sqlite3.Error) as error:
            raise BookError(
                f"{path} cannot be used ({error}): free some space, or move it away; what it holds is lost then"
            ) from error

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    @contextlib.contextmanager
    def changing(self) -> Generator[None]:
        """One transaction: kept when the block ends, undone when it raises.

        Raises:
            UnavailableError: the disk does not take it; nothing is changed.
        """
        try:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._file.execute("ROLLBACK")
            raise UnavailableError(
                f"the events cannot be kept: {error}", hint="send the same request again; free some space on the disk"
            ) from error

    @property
    def fullness(self) -> float:
        """Bytes in use over the bound."""
        pages, free, size = (self._number(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size"))
        return (pages - free) * size / max(1, self._most_bytes)

    def refuse_when_full(self) -> None:
        """Refuse more where the file is at its bound.

        Raises:
            UnavailableError: it is.
        """
        if self.fullness > 1:
            raise UnavailableError(
                f"{self._most_bytes} bytes of events wait for the end of their spans, or for the store",
                hint="end spans that are open, and see to it that the agent reaches a gateway; then send it again",
            )

    def run_id(self, name: RunName) -> int:
        """The number of a run, made where it has none."""
        self._file.execute("INSERT OR IGNORE INTO runs (project, run) VALUES (?, ?)", (name.project, name.run))
        return self._number("SELECT id FROM runs WHERE project = ? AND run = ?", name.project, name.run)

    def run_name(self, run: int) -> RunName:
        """What a number stands for."""
        (row,) = self._rows("SELECT project, run FROM runs WHERE id = ?", run)
        return RunName(str(row[0]), str(row[1]))

    def answer(self, run: int, key: bytes) -> Answer | None:
        """The answer given to a key, whose digest is asked for; None: none was."""
        rows = self._rows("SELECT digest, answer FROM answers WHERE run = ? AND key = ?", run, key)
        return Answer(cast("bytes", rows[0][0]), str(rows[0][1])) if rows else None

    def note_answer(self, run: int, key: bytes, answer: Answer, /, *, due: int) -> None:
        """Keep an answer until it is due."""
        self._file.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?)", (run, key, answer.digest, answer.text, due))

    def span(self, run: int, trace: bytes, span: bytes, /) -> Kept | None:
        """A span; None: nothing is known of it."""
        rows = self._rows(_SPAN, run, trace, span)
        return _kept(rows[0]) if rows else None

    def keep(self, run: int, kept: Kept) -> None:
        """Keep a span, in place of what was known of it."""
        self._file.execute(
            "INSERT OR REPLACE INTO spans (run, trace, span, state, due, body) VALUES (?, ?, ?, ?, ?, ?)",
            (run, kept.trace, kept.span, kept.state, kept.due, kept.body),
        )

    def due(self, state: State, *, now_ns: int, limit: int) -> Sequence[tuple[int, Kept]]:
        """Spans of a state that are due, with the numbers of their runs, those due longest first."""
        return [(int(str(row[7])), _kept(row)) for row in self._rows(_DUE, state, now_ns, limit)]

    def open_runs(self) -> Sequence[int]:
        """Numbers of the runs that have open spans."""
        return [int(str(row[0])) for row in self._rows("SELECT DISTINCT run FROM spans WHERE state = 0")]

    def open_spans(self, run: int, *, limit: int = 1_024) -> Sequence[Kept]:
        """The open spans of a run that were heard of last."""
        return [_kept(row) for row in self._rows(_OPEN, run, limit)]

    def next_due(self, state: State) -> int | None:
        """When the next span of a state is due; None: there is none."""
        rows = self._rows("SELECT due FROM spans WHERE state = ? ORDER BY due LIMIT 1", state)
        return int(str(rows[0][0])) if rows else None

    def seal(self, run: int, spans: Sequence[Kept], *, batch: SealedBatch) -> None:
        """Keep a batch, and that the spans are in it."""
        self._file.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)",
            (batch.incarnation, batch.seq, run, batch.payload, batch.digest, batch.rows, batch.week),
        )
        self._file.executemany(
            _SEAL,
            [
                (State.SEALED, one.path, one.depth, batch.incarnation, batch.seq, run, one.trace, one.span)
                for one in spans
            ],
        )

    def batches(self) -> Sequence[tuple[int, SealedBatch]]:
        """The batches that may not be in the spool yet, with the numbers of their runs, in order."""
        sql = "SELECT run, payload, incarnation, seq, digest, rows, week FROM batches ORDER BY incarnation, seq"
        return [(int(str(row[0])), _batch(row[1:])) for row in self._rows(sql)]

    def open_again(self, batch: SealedBatch) -> None:
        """Take a batch back that is in no spool: its spans wait to be written again."""
        self._file.execute(_REOPEN, (State.CLOSED, batch.incarnation, batch.seq))
        self._remove(batch)

    def note_written(self, batch: SealedBatch, *, due: int) -> None:
        """The batch is in the spool: of its spans only that is kept, until it is due."""
        self._file.execute(_WRITTEN, (State.WRITTEN, due, batch.incarnation, batch.seq))
        self._remove(batch)

    def forget(self, *, now_ns: int) -> None:
        """Forget answers and written spans that are due."""
        self._file.execute("DELETE FROM answers WHERE due <= ?", (now_ns,))
        self._file.execute("DELETE FROM spans WHERE state = ? AND due <= ?", (State.WRITTEN, now_ns))

    def _prepare(self, path: Path) -> None:
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")  # an accepted event outlives the machine, too
        version = self._number("PRAGMA user_version")
        if version not in (0, VERSION):
            raise BookError(f"{path} is of another release (version {version}): start that one, or move the file away")
        if version == 0:
            self._file.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                self._file.execute(statement)
            self._file.execute("COMMIT")

    def _remove(self, batch: SealedBatch) -> None:
        self._file.execute("DELETE FROM batches WHERE incarnation = ? AND seq = ?", (batch.incarnation, batch.seq))

    def _rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        try:
            return self._file.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise UnavailableError(f"what is kept cannot be read: {error}", hint="send the request again") from error

    def _number(self, sql: str, *values: object) -> int:
        return int(str(self._rows(sql, *values)[0][0]))


def _kept(row: tuple[object, ...]) -> Kept:
    trace, span, state, due, body, path, depth = row[:7]
    standing = State(int(str(state))), int(str(due))
    return Kept(cast("bytes", trace), cast("bytes", span), *standing, str(body), str(path or ""), int(str(depth or 0)))


def _batch(row: tuple[object, ...]) -> SealedBatch:
    payload, incarnation, seq, digest, rows, week = row
    return SealedBatch(
        cast("bytes", payload),
        cast("bytes", incarnation),
        int(str(seq)),
        cast("bytes", digest),
        int(str(rows)),
        int(str(week)),
        {},
    )
