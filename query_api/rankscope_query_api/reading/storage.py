"""How much room the tables take, how fast they grow, how long they keep rows.

The one reader that looks across projects: it sees sizes, never a row's content.
"""

import re
from collections.abc import Mapping

from rankscope_proto.columns import SECTIONS
from rankscope_query_api.clickhouse import Selecting
from rankscope_query_api.values import WEEK_DAYS, Disk, Record, StorageState, TableSize

TABLES = (*(section.table for section in SECTIONS), "batches", "trace_index")

_DAY_NS = 24 * 3600 * 10**9
_LEAST_NS = 60 * 10**9
"""A store that took its first batch a second ago has no rate yet."""

WINDOW = {"recent": _DAY_NS, "least": _LEAST_NS}
"""The rate is that of the last day, so that a training that ended last week no longer counts."""

SIZES = """
SELECT table, sum(rows) AS row_count, sum(bytes_on_disk) AS bytes
FROM system.parts
WHERE active AND database = currentDatabase() AND has({tables:Array(String)}, table)
GROUP BY table
ORDER BY table"""

ENGINES = """
SELECT name, engine_full
FROM system.tables
WHERE database = currentDatabase() AND has({tables:Array(String)}, name)
ORDER BY name"""

DISKS = "SELECT name, free_space AS free, total_space AS total FROM system.disks ORDER BY name"

_RECENT = ", ".join(f"sum(rows_{section.name}) AS {section.table}" for section in SECTIONS)

# The weeks before the last are not even opened: a ledger of a thousand ranks has billions of rows.
GROWTH = f"""
WITH toUnixTimestamp64Nano(now64(9)) AS now_ns, if(received > 0, received, sealed) AS heard
SELECT count() AS batches, {_RECENT}, greatest(now_ns - min(heard), {{least:Int64}}) AS window_ns
FROM batches
WHERE week >= toMonday(today()) - 7 AND heard > now_ns - {{recent:Int64}}"""  # noqa: S608 - names of the declaration

_TTL = re.compile(r" TTL .*?(week \+ )?toIntervalDay\((\d+)\)")


class ClickHouseStorage:
    """`StorageReader` over ClickHouse."""

    def __init__(self, clickhouse: Selecting) -> None:
        self._clickhouse = clickhouse

    async def state(self) -> StorageState:
        """See `StorageReader`."""
        named = {"tables": list(TABLES)}
        sizes = {row["table"]: row for row in (await self._clickhouse.select(SIZES, named)).records()}
        engines = {row["name"]: row["engine_full"] for row in (await self._clickhouse.select(ENGINES, named)).records()}
        disks = [
            Disk(row["name"], row["free"], row["total"]) for row in (await self._clickhouse.select(DISKS, {})).records()
        ]
        (growth,) = (await self._clickhouse.select(GROWTH, WINDOW)).records()
        return StorageState([_size(table, sizes, engines=engines, growth=growth) for table in TABLES], disks)


def _size(table: str, sizes: Mapping[str, Record], *, engines: Mapping[str, str], growth: Record) -> TableSize:
    rows, size = (sizes[table]["row_count"], sizes[table]["bytes"]) if table in sizes else (0, 0)
    share = growth.get(table, 0) / rows if rows else 0.0
    return TableSize(
        table=table,
        rows=rows,
        size_bytes=size,
        bytes_per_day=min(share, 1.0) * size * _DAY_NS / growth["window_ns"],
        retention_days=_retention_days(engines.get(table, "")),
    )


def _retention_days(engine: str) -> int | None:
    """The days that were asked for: a limit by the week of sealing holds the week itself besides."""
    found = _TTL.search(engine)
    return int(found[2]) - (WEEK_DAYS if found[1] else 0) if found else None
