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
from rankscope_query_api.errors import ListenError, QueryError
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from rankscope_query_api.store import TraceStore

logger = logging.getLogger(__name__)

_GRACE_S = 2
"""Time that answers under way get when the service stops."""


_FITNESS_S = 1
"""Pause between two looks at a store that cannot be read yet."""


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
        SettingsError: A setting is not usable.
        ListenError: The address is taken, or is not this machine's.
    """
    own = Settings.from_environment(settings)
    with _listening(own) as listener:
        metrics = Metrics()
        store = ClickHouseStore(ClickHouse(own, metrics))
        watching = asyncio.create_task(_tell_until_fit(store), name="query-service-fitness")
        try:
            app = create_app(store, own, metrics=metrics)
            config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=_GRACE_S)
            server = _Server(config)
            logger.info("query service listens", extra={"host": own.host, "port": listener.getsockname()[1]})
            await _until_stopped(server, listener, stop=stop)
        finally:
            await _cancelled(watching)
            await store.close()


async def _tell_until_fit(store: TraceStore) -> None:
    """Says what the store lacks, each thing once, until it lacks nothing; a writer may be making the tables now."""
    said = ""
    while True:
        try:
            await store.ping()
        except QueryError as error:
            if str(error) != said:
                said = str(error)
                logger.error("not ready: %s", said, extra={"code": error.code})
            await asyncio.sleep(_FITNESS_S)
        else:
            logger.info("ready")
            return


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


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
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise ListenError(
            f"the query service cannot listen on {settings.query_listen}: {error.strerror}",
            hint="name a free address of this machine in RANKSCOPE_QUERY_LISTEN",
        ) from error
