"""A query service over a chDB that is filled when it begins: what a bench asks, in a process of its own."""

import asyncio
import os
import signal
from collections.abc import Callable

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from rankscope_query_api.service import serve
from tests.proto.batches import migrate


async def serve_filled(folder: str, port: str, *, fill: Callable[[Client], None]) -> None:
    """Fills a migrated store in a folder, then serves it on a port of this machine until SIGTERM."""
    os.chdir(folder)
    url = f"chdb://{folder}/store"
    writer = clickhouse_connect.get_client(dsn=url)
    migrate(writer)
    fill(writer)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await serve({"RANKSCOPE_CLICKHOUSE_URL": url, "RANKSCOPE_QUERY_LISTEN": f"127.0.0.1:{port}"}, stop)
    writer.close()
