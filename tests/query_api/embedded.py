"""The query service over a chDB of its own that holds the story: `python -m tests.query_api.embedded FOLDER PORT`.

chDB allows one folder per process, so this one is not opened in the process of the tests.
"""

import asyncio
import os
import signal
import sys

import clickhouse_connect

from rankscope_query_api.service import serve
from tests.proto.batches import insert, migrate
from tests.query_api import story


async def main(folder: str, port: str) -> None:
    """Fills the store, then serves until SIGTERM."""
    os.chdir(folder)
    url = f"chdb://{folder}/store"
    writer = clickhouse_connect.get_client(dsn=url)
    migrate(writer)
    insert(writer, *story.batches())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = {
        "RANKSCOPE_CLICKHOUSE_URL": url,
        "RANKSCOPE_QUERY_LISTEN": f"127.0.0.1:{port}",
        "RANKSCOPE_QUERY_HANDLES": "1",  # so that every query comes to the handle that a failed one had
        "RANKSCOPE_QUERY_MAX_RESULT_ROWS": "5000",
        "RANKSCOPE_QUERY_TIMEOUT_S": "600",  # what ends sooner was ended
        "RANKSCOPE_VIGIL_EVERY_S": "0",  # the one handle is the tests'
    }
    await serve(settings, stop)
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
