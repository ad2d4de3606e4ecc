"""Statements that cost more than they may, on a service with one handle.

`python -m tests.query_api.sql.cutting FOLDER` does it with chDB in its own process, JSON on stdout; over HTTP the tests
call `cut` themselves.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import clickhouse_connect
import httpx

from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from tests.proto.batches import insert, migrate
from tests.query_api import story
from tests.query_api.sql.sending import send

_CROSSED = "FROM spans a, spans b, spans c, spans d"

COSTLY = {
    "timed_out": f"SELECT sum(cityHash64(a.name, b.name, c.name, d.name)) AS h {_CROSSED}",
    "rows": "SELECT rank FROM spans UNION ALL SELECT rank FROM spans UNION ALL SELECT rank FROM tensor_stats",
    "bytes": "SELECT groupArray(concat(a.path, b.path, a.name, b.name)) AS l FROM spans a, spans b",
    "bytes of one row": "SELECT range(1000000) AS l",
    "memory": "SELECT length(groupArray(range(100 + a.rank))) AS n FROM spans a, spans b",
    "a fault midway": "SELECT a.name, toInt64(concat(a.name, b.name)) AS n FROM spans a, spans b",
    "a type": "SELECT rank + name AS n FROM spans",
}
"""What is asked, by why it is not answered."""

LIMITS = {
    "RANKSCOPE_QUERY_HANDLES": "1",
    "RANKSCOPE_QUERY_MAX_RESULT_ROWS": "1000",
    "RANKSCOPE_QUERY_MAX_RESULT_BYTES": str(2**20),
    "RANKSCOPE_QUERY_MAX_MEMORY_BYTES": str(200 * 2**20),
}


async def cut(url: str) -> dict[str, Any]:
    """The code that each costly statement is answered with, and what the statement after it is answered."""
    found = await _cut(url, ["timed_out"], timeout_s=0.5)
    return found | await _cut(url, [why for why in COSTLY if why not in found], timeout_s=300)


async def _cut(url: str, reasons: Sequence[str], *, timeout_s: float) -> dict[str, Any]:
    limits = {**LIMITS, "RANKSCOPE_QUERY_TIMEOUT_S": str(timeout_s)}
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": url, **limits})
    store = ClickHouseStore(ClickHouse(settings, Metrics()))
    transport = httpx.ASGITransport(create_app(store, settings))
    found: dict[str, Any] = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as api:
        for why in reasons:
            failed = await send(api, COSTLY[why], limit=100_000)
            others = (await send(api, "SELECT DISTINCT project, name FROM spans", project="other")).json()["items"]
            own = (await send(api, "SELECT count() AS n FROM spans WHERE name = 'step'")).json()["items"]
            found[why] = [failed.status_code, failed.json().get("code"), others, own]
    await store.close()
    return found


def main(folder: str) -> None:
    """Prints what came back, and what the engine was still at behind it."""
    os.chdir(folder)
    url = f"chdb://{folder}/store"
    writer = clickhouse_connect.get_client(dsn=url)
    migrate(writer)
    insert(writer, *story.batches())
    found = asyncio.run(cut(url))
    running = writer.query("SELECT count() FROM system.processes WHERE query NOT LIKE '%system.processes%'").result_rows
    writer.close()
    sys.stdout.write(json.dumps({"found": found, "running": running[0][0]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
