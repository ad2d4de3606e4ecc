"""The outside ledger: what a source handed to its spool, written down by the source and by nobody else.

An oracle that asked the system what it should hold would believe its losses. So a source writes a line before a
batch goes to the spool (it may exist from then on) and one after the spool took it (from then on it must). Each is
one `write` to a file opened for appending: a killed source leaves whole lines, but for the last.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope._export import SealedBatch
from rankscope_proto.v1.batch_pb2 import Batch

Key = tuple[str, int]
"""Incarnation in hex, seq."""


@dataclass(frozen=True, slots=True)
class Written:
    """One sealed batch as its source knows it.

    Attributes:
        counts: Rows by section.
        scalar_sum: Sum of the values of its scalars.
        span_sum: Sum of its span ids, modulo 2^64.
        digest: Of the sealed bytes, hex.
    """

    counts: Mapping[str, int]
    scalar_sum: float
    span_sum: int
    digest: str

    @property
    def rows(self) -> int:
        """Rows in all sections."""
        return sum(self.counts.values())


@dataclass(slots=True)
class Truth:
    """What all sources wrote down.

    Attributes:
        may: Batches that may be stored.
        must: Those that the spool took: lost unless stored or declared.
    """

    may: dict[Key, Written] = field(default_factory=dict[Key, Written])
    must: set[Key] = field(default_factory=set[Key])

    @property
    def rows(self) -> int:
        """Rows that must be there."""
        return sum(self.may[key].rows for key in self.must)


class Outside:
    """The ledger of one source.

    Args:
        path: The file that lines are added to.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def may(self, batch: SealedBatch) -> None:
        """The batch is about to be given to the spool."""
        self._say({"may": _key(batch), **_described(batch)})

    def must(self, batch: SealedBatch) -> None:
        """The spool took it."""
        self._say({"must": _key(batch)})

    def _say(self, line: Mapping[str, object]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def _key(batch: SealedBatch) -> tuple[str, int]:
    return batch.incarnation.hex(), batch.seq


def _described(batch: SealedBatch) -> dict[str, Any]:
    message = Batch.FromString(batch.payload)
    return {
        "counts": dict(batch.counts),
        "scalar_sum": float(sum(message.scalars.value)),
        "span_sum": sum(message.spans.span_id) % 2**64,
        "digest": batch.digest.hex(),
    }


def truth_of(folder: Path) -> Truth:
    """Everything the sources wrote into `*.ledger` files of a folder."""
    truth = Truth()
    for path in sorted(folder.glob("*.ledger")):
        whole = path.read_bytes().rpartition(b"\n")[0]
        for text in whole.splitlines():
            _take(json.loads(text), truth)
    return truth


def _take(line: dict[str, Any], truth: Truth) -> None:
    if "must" in line:
        truth.must.add((line["must"][0], line["must"][1]))
        return
    incarnation, seq = line.pop("may")
    truth.may[incarnation, seq] = Written(**line)
