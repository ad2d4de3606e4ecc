"""Batches for the tests of the contract, and their way into a store."""

from collections.abc import Iterable
from typing import Any

from clickhouse_connect.driver.client import Client

from rankscope_proto.columns import SCHEMA_VERSION
from rankscope_proto.storage import INSERT_SETTINGS, landing_schema, migrations
from rankscope_proto.v1 import batch_pb2 as pb

SEALED = 1_795_971_713_000_000_000
"""2026-11-29, a Sunday, in ns."""

WEEK = 20780
"""The Monday before it, 2026-11-23, in days since 1970-01-01."""

INCARNATION = bytes(range(16))
LAUNCH = bytes(range(16, 32))
GROUP = "group-1"
"""The deduplication token of a test that needs only one."""


def batch(*, rank: int = 0, seq: int = 0, week: int = WEEK, strings: Iterable[str] = ("",)) -> pb.Batch:
    """A batch with a whole header and no rows."""
    made = pb.Batch(strings=strings)
    header = made.header
    header.schema_version, header.project, header.run_id = SCHEMA_VERSION, "default", "run-1"
    header.launch_id, header.incarnation, header.seq = LAUNCH, INCARNATION, seq
    header.process_role, header.rank, header.local_rank, header.world_size = 1, rank, rank, 4
    header.worker_index = header.parent_rank = -1
    header.node, header.pid, header.boot_id = "node-a", 4711, "boot-1"
    header.sealed, header.sealed_mono, header.week, header.sdk_version = SEALED, 5, week, "0.1.0"
    return made


def with_rows(made: pb.Batch, section: str, **columns: Any) -> pb.Batch:
    """The batch with a section's columns set."""
    message = getattr(made, section)
    for name, values in columns.items():
        getattr(message, name).extend(values)
    return made


def delimited(batches: Iterable[pb.Batch]) -> bytes:
    """The batches as ClickHouse's format Protobuf has them: each after its length as a varint."""
    return b"".join(_varint(len(payload)) + payload for payload in (made.SerializeToString() for made in batches))


def _varint(number: int) -> bytes:
    head = b""
    while number > 127:
        head += bytes([number & 127 | 128])
        number >>= 7
    return head + bytes([number])


def migrate(client: Client) -> None:
    """Makes every object of the contract."""
    for migration in migrations():
        for statement in migration.statements:
            client.command(statement)


def insert(client: Client, *batches: pb.Batch, token: str = GROUP) -> None:
    """One insert into `landing`, as the writer does it."""
    settings = {**INSERT_SETTINGS, "format_schema": landing_schema(), "insert_deduplication_token": token}
    client.raw_insert("landing", insert_block=delimited(batches), fmt="Protobuf", settings=settings)


def number(client: Client, query: str) -> int:
    """The one number a query gives."""
    return int(client.query(query).result_rows[0][0])
