"""The query service as a part of some process: it serves until it is told to stop, and touches no signal."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator, Mapping

import uvicorn

from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.errors import SettingsError
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings

logger = logging.getLogger(__name__)

_GRACE_S = 2
"""Time that answers under way get when the service stops."""


class _Server(uvicorn.Server):
    """Signals belong to the process, which may hold other services."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve(settings: Mapping[str, str], stop: asyncio.Event) -> None:
    """Answers over HTTP until `stop` is set, then finishes what is under way and lets go of the store.

    Args:
        settings: Environment-like; see `Settings`.
        stop: Set it to end.

    Raises:
        SettingsError: A setting is not usable, or the address is taken.
    """
    own = Settings.from_environment(settings)
    with _listening(own) as listener:
        metrics = Metrics()
        store = ClickHouseStore(ClickHouse(own, metrics))
        try:
            app = create_app(store, own, metrics=metrics)
            config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=_GRACE_S)
            server = _Server(config)
            logger.info("query service listens", extra={"host": own.host, "port": listener.getsockname()[1]})
            await _until_stopped(server, listener, stop=stop)
        finally:
            await store.close()


async def _until_stopped(server: uvicorn.Server, listener: socket.socket, *, stop: asyncio.Event) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="query-service")
    stopping = asyncio.create_task(stop.wait(), name="query-service-stop")
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        server.should_exit = True
        await serving


def _listening(settings: Settings) -> socket.socket:
    try:
        return socket.create_server((settings.host, settings.port), backlog=2048)
    except OSError as error:
        raise SettingsError(
            f"the query service cannot listen on {settings.query_listen}: {error.strerror}; "
            "name a free one in RANKSCOPE_QUERY_LISTEN"
        ) from error
