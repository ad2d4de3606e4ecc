"""The table contract: versioned migrations, and the schema text that travels with each insert."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

INSERT_SETTINGS: dict[str, str | int] = {
    "format_schema_source": "string",
    "format_schema_message_name": "Batch",
    "async_insert": 0,
    "insert_deduplicate": 1,
    "max_insert_threads": 1,
    "parallel_view_processing": 0,
    "input_format_parallel_parsing": 0,
    "max_insert_block_size": 1_048_576,
    "min_insert_block_size_rows": 0,
    "min_insert_block_size_bytes": 0,
    "max_partitions_per_insert_block": 0,
}
"""Settings of every insert into `landing`: one insert is one block, so that its token covers it whole.

A group may hold batches of any number of weeks: with a limit on partitions, old clocks would be poison
that no parser finds."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One version of the tables.

    Attributes:
        version: From 1, without holes.
        name: What it brings.
        statements: Idempotent statements, in order.
    """

    version: int
    name: str
    statements: tuple[str, ...]


def _statements(text: str) -> Iterator[str]:
    for statement in text.split(";\n"):
        lines = [line for line in statement.splitlines() if not line.startswith("--")]
        if any(line.strip() for line in lines):
            yield "\n".join(lines).strip()


def migrations() -> tuple[Migration, ...]:
    """Every migration, in order of version; read from `NNN_name.sql` beside this file."""
    found: list[Migration] = []
    for path in sorted(files(__name__).iterdir(), key=lambda path: path.name):
        if path.name.endswith(".sql"):
            number, _, name = path.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, tuple(_statements(path.read_text()))))
    return tuple(found)


def landing_schema() -> str:
    """The protobuf schema of `landing` as sent with each insert (below 8 kB: it goes into the URL)."""
    return files(__name__).joinpath("landing.txt").read_text().strip()
