"""Batches from rows as people write them: dictionaries with words, lists and maps, one a row.

A process of a run is a `Writer`; it counts its batches and what it emitted, as the SDK does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rankscope_proto.columns import SCHEMA_VERSION, SECTION_BY_NAME, SECTIONS
from rankscope_proto.declaration import Field, Section, Wire
from rankscope_proto.names import ProcessRole
from rankscope_proto.v1 import batch_pb2 as pb
from tests.ground.stores import Store

Row = Mapping[str, Any]

START = 1_795_971_713_000_000_000
"""2026-11-29T18:21:53Z in ns."""

WEEK = 20780
"""The Monday before it in days since 1970-01-01."""

MS = 1_000_000

S = 1000 * MS


class Writer:
    """One process of a run.

    Args:
        run: The run.
        rank: Its rank; -1: none.
        project: Whose run it is.
        launch: 16 bytes.
        world_size: Ranks of the launch.
        role: What the process does.
    """

    def __init__(
        self,
        run: str,
        rank: int,
        *,
        project: str = "default",
        launch: bytes = b"L" * 16,
        world_size: int = 4,
        role: ProcessRole = ProcessRole.TRAINER,
    ) -> None:
        self.rank = rank
        self.launch = launch
        self.incarnation = launch[:8] + (rank + 1).to_bytes(8, "big")
        self._header = {
            "schema_version": SCHEMA_VERSION,
            "project": project,
            "run_id": run,
            "launch_id": launch,
            "process_role": role.code,
            "rank": rank,
            "local_rank": rank,
            "world_size": world_size,
            "worker_index": -1,
            "parent_rank": -1,
            "node": f"node-{max(rank, 0) // 2}",
            "pid": 4000 + rank,
            "boot_id": "boot-1",
            "incarnation": self.incarnation,
            "week": WEEK,
            "sdk_version": "0.1.0",
        }
        self._seq = 0
        self._emitted: Counter[str] = Counter()

    def seal(
        self, *, sealed_ns: int = START, lost: Mapping[str, int] | None = None, **sections: Sequence[Row]
    ) -> pb.Batch:
        """The next batch.

        Args:
            sealed_ns: When it is sealed.
            lost: Rows emitted and dropped before this batch, by section.
            sections: Rows by section.
        """
        made = pb.Batch()
        strings: dict[str, int] = {"": 0}
        for name, rows in sections.items():
            self._emitted[name] += len(rows)
            _fill(getattr(made, name), SECTION_BY_NAME[name], rows, strings)
        self._emitted.update(lost or {})
        made.strings.extend(strings)
        for name, value in {**self._header, "seq": self._seq, "sealed": sealed_ns, "sealed_mono": sealed_ns}.items():
            setattr(made.header, name, value)
        for section in SECTIONS:
            setattr(made.header, f"emitted_{section.name}", self._emitted[section.name])
        self._seq += 1
        return made

    def skip(self) -> None:
        """Leaves a hole in the batch numbers."""
        self._seq += 1


def heard(store: Store, *, seconds_ago: int) -> None:
    """Every batch as if it had been received then."""
    when = f"toUnixTimestamp64Nano(now64(9)) - {seconds_ago * S}"
    store.client.command(f"ALTER TABLE batches UPDATE received = {when} WHERE 1 SETTINGS mutations_sync = 1")


def _fill(message: Any, section: Section, rows: Sequence[Row], strings: dict[str, int]) -> None:
    parts = {map_column.name: (map_column.keys, map_column.values) for map_column in section.maps}
    flat = [_flattened(row, parts) for row in rows]
    for field in section.fields:
        column = getattr(message, field.name)
        if field.wire is Wire.PRESENT:
            column.extend(_present(section, row) for row in flat)
        elif field.wire is Wire.COUNT:
            listed = next(other.name for other in section.fields if other.count == field.name)
            column.extend(len(row.get(listed, ())) for row in flat)
        elif field.count is not None:
            column.extend(_coded(value, field, strings) for row in flat for value in row.get(field.name, ()))
        else:
            column.extend(_coded(row.get(field.name), field, strings) for row in flat)


def _flattened(row: Row, parts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    flat = dict(row)
    for name, (keys, values) in parts.items():
        inner: Mapping[str, Any] = flat.pop(name, {})
        flat[keys], flat[values] = list(inner), list(inner.values())
    return flat


def _present(section: Section, row: Row) -> int:
    bits = ((field.optional, row.get(field.name)) for field in section.fields if field.optional is not None)
    return sum(1 << bit for bit, value in bits if value is not None)


def _coded(value: Any, field: Field, strings: dict[str, int]) -> Any:
    if field.wire is Wire.DICT:
        return strings.setdefault(value or "", len(strings))
    if value is None:
        return {Wire.STRING: "", Wire.BYTES: b""}.get(field.wire, 0)
    return value
