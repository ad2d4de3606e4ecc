"""What comes back on a chDB handle after a failed query: `python -m tests.query_api.leak FOLDER`, JSON on stdout.

Once with the driver alone, which shows the fault that `clickhouse.py` guards against, and once through it.
"""

import asyncio
import contextlib
import json
import os
import sys

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.errors import QueryError
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings

TABLE = "CREATE TABLE secrets (project String, number UInt64) ENGINE = MergeTree ORDER BY (project, number)"
FILL = "INSERT INTO secrets SELECT 'theirs', number FROM numbers(3000000)"
FAILS = "SELECT project, number + throwIf(number > 2500000) AS number FROM secrets WHERE project = 'theirs'"
OURS = "SELECT project, number FROM secrets WHERE project = {project:String}"


def rows_of_the_driver(url: str) -> int:
    """Rows that a query of project `ours` gets on the handle of a failed query, without any guard."""
    client = clickhouse_connect.get_client(dsn=url)
    with contextlib.suppress(ClickHouseError):
        client.query(FAILS)
    rows = len(client.query(OURS, parameters={"project": "ours"}).result_rows)
    client.close()
    return rows


async def rows_of_the_service(url: str) -> dict[str, int]:
    """The same through the service's door, whose one handle is used for both."""
    settings = Settings.from_environment({"RANKSCOPE_CLICKHOUSE_URL": url, "RANKSCOPE_QUERY_HANDLES": "1"})
    door = ClickHouse(settings, Metrics())
    failures = rows = 0
    for _ in range(3):
        try:
            await door.select(FAILS, {})
        except QueryError:
            failures += 1
        table = await door.select(OURS, {"project": "ours"})
        rows += len(table.records())
    await door.close()
    return {"failures": failures, "rows": rows}


def main(folder: str) -> None:
    """Prints what came back."""
    os.chdir(folder)
    url = f"chdb://{folder}/store"
    writer = clickhouse_connect.get_client(dsn=url)
    writer.command(TABLE)
    writer.command(FILL)
    found = {"driver": rows_of_the_driver(url), **asyncio.run(rows_of_the_service(url))}
    writer.close()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
