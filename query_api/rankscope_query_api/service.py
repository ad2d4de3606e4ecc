"""The query service as a part of some process: it serves until it is told to stop, and touches no signal."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Generator, Mapping
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from rankscope.errors import ConfigError
from rankscope.up import exposure_fault, server_context
from rankscope_proto.keys import KeyFileError, KeyRing
from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse import ClickHouse
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.errors import ListenError, QueryError, SettingsError
from rankscope_query_api.metrics import Metrics
from rankscope_query_api.settings import Settings
from rankscope_query_api.store import TraceStore
from rankscope_query_api.vigil import Vigil
from rankscope_query_api.webhook import Webhook

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
    ring, tls = _ring(own), _tls(own)
    _refuse_exposed(own)
    with listening(own) as listener:
        metrics = Metrics()
        store = ClickHouseStore(ClickHouse(own, metrics))
        watching = asyncio.create_task(_watch(store, own), name="query-service-watch")
        try:
            app = create_app(store, own, metrics=metrics, ring=ring)
            server = _Server(_config(app, tls))
            logger.info("query service listens", extra={"host": own.host, "port": listener.getsockname()[1]})
            await _until_stopped(server, listener, stop=stop)
        finally:
            await _cancelled(watching)
            await store.close()


def _ring(settings: Settings) -> KeyRing | None:
    try:
        return KeyRing(Path(settings.keys)) if settings.keys else None
    except KeyFileError as error:
        raise SettingsError(f"RANKSCOPE_KEYS: {error}") from error


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls_cert:
        if settings.tls_key or settings.tls_client_ca:
            raise SettingsError(
                "RANKSCOPE_TLS_KEY or RANKSCOPE_TLS_CLIENT_CA is set", hint="set RANKSCOPE_TLS_CERT too"
            )
        return None
    try:
        return server_context(settings.tls_cert, settings.tls_key, client_ca=settings.tls_client_ca)
    except ConfigError as error:
        raise SettingsError(f"RANKSCOPE_TLS_CERT: {error}") from error


def _refuse_exposed(settings: Settings) -> None:
    fault = exposure_fault(
        settings.host,
        has_keys=bool(settings.keys),
        has_tls=bool(settings.tls_cert),
        is_insecure=settings.insecure,
    )
    if fault:
        raise SettingsError(f"the query service does not start: {fault}")


def _config(app: FastAPI, tls: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=_GRACE_S)
    config.load()
    config.ssl = tls  # a context of ours, not uvicorn's file options: a file that cannot be used was told as a setting
    return config


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


async def _watch(store: TraceStore, settings: Settings) -> None:
    """Waits for the store, then watches the runs that go on."""
    await _tell_until_fit(store)
    if settings.vigil_every_s:
        url = settings.webhook_url.get_secret_value()
        await Vigil(store, every_s=settings.vigil_every_s, webhook=Webhook(url) if url else None).watch()


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


def listening(settings: Settings) -> socket.socket:
    """The socket that the service listens on.

    Raises:
        ListenError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise ListenError(
            f"the query service cannot listen on {settings.query_listen}: {error.strerror}",
            hint="name a free address of this machine in RANKSCOPE_QUERY_LISTEN",
        ) from error
    # asyncio sets it only where a socket names its protocol, which those that this one accepts do not. Without it the
    # second packet of an answer waits for the first one's delayed acknowledgement: 44 ms of each answer.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
