"""The ingest subcommands of `rankscope`: gateway, writer, migrate.

Each option is a setting of the same name; an option beats the environment. The services are
imported inside the commands: the gateway must not pay for the store's driver, nor `--help` for either.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

import typer
from pydantic import SecretStr

from rankscope_ingest.errors import IngestError
from rankscope_ingest.settings import (
    DEFAULT_CLICKHOUSE_URL,
    DEFAULT_REDIS_URL,
    GatewaySettings,
    MigrateSettings,
    ServiceSettings,
    WriterSettings,
    env_name,
)

logger = logging.getLogger(__name__)

Serve = Callable[[Mapping[str, str], asyncio.Event], Awaitable[None]]


def _help(settings: type[ServiceSettings], field: str) -> str:
    return settings.model_fields[field].description or ""


RedisUrlOption = Annotated[str, typer.Option(envvar="RANKSCOPE_REDIS_URL", help=_help(GatewaySettings, "redis_url"))]
ClickHouseUrlOption = Annotated[
    str, typer.Option(envvar="RANKSCOPE_CLICKHOUSE_URL", help=_help(WriterSettings, "clickhouse_url"))
]
LogFormatOption = Annotated[str, typer.Option(envvar="RANKSCOPE_LOG_FORMAT", help=_help(GatewaySettings, "log_format"))]
REDIS_URL = DEFAULT_REDIS_URL.get_secret_value()
CLICKHOUSE_URL = DEFAULT_CLICKHOUSE_URL.get_secret_value()


def gateway(
    listen: Annotated[
        str,
        typer.Option(envvar="RANKSCOPE_GATEWAY_LISTEN", help=_help(GatewaySettings, "gateway_listen")),
    ] = "127.0.0.1:8471",
    redis_url: RedisUrlOption = REDIS_URL,
    *,
    shard_budget_bytes: Annotated[
        int,
        typer.Option(envvar="RANKSCOPE_SHARD_BUDGET_BYTES", help=_help(GatewaySettings, "shard_budget_bytes")),
    ] = 16 * 2**20,
    metrics_listen: Annotated[
        str,
        typer.Option(envvar="RANKSCOPE_GATEWAY_METRICS_LISTEN", help=_help(GatewaySettings, "gateway_metrics_listen")),
    ] = "",
    log_format: LogFormatOption = "text",
) -> None:
    """Accept batches over gRPC and pass them to the broker. Exit codes: 0 stopped, 1 failed, 2 usage."""
    from rankscope_ingest.gateway import serve

    options = {
        "gateway_listen": listen,
        "redis_url": redis_url,
        "shard_budget_bytes": str(shard_budget_bytes),
        "gateway_metrics_listen": metrics_listen,
        "log_format": log_format,
    }
    _run(serve, options)


def writer(
    redis_url: RedisUrlOption = REDIS_URL,
    clickhouse_url: ClickHouseUrlOption = CLICKHOUSE_URL,
    *,
    migrate: Annotated[bool, typer.Option(envvar="RANKSCOPE_MIGRATE", help=_help(WriterSettings, "migrate"))] = False,
    linger_ms: Annotated[
        int, typer.Option(envvar="RANKSCOPE_LINGER_MS", help=_help(WriterSettings, "linger_ms"))
    ] = 500,
    metrics_listen: Annotated[
        str,
        typer.Option(envvar="RANKSCOPE_WRITER_METRICS_LISTEN", help=_help(WriterSettings, "writer_metrics_listen")),
    ] = "",
    log_format: LogFormatOption = "text",
) -> None:
    """Write accepted batches to the store. Exit codes: 0 stopped, 1 failed, 2 usage."""
    from rankscope_ingest.writer import serve

    options = {
        "redis_url": redis_url,
        "clickhouse_url": clickhouse_url,
        "migrate": str(migrate),
        "linger_ms": str(linger_ms),
        "writer_metrics_listen": metrics_listen,
        "log_format": log_format,
    }
    _work_inside(clickhouse_url)
    _run(serve, options)


def migrate(
    clickhouse_url: ClickHouseUrlOption = CLICKHOUSE_URL,
    log_format: LogFormatOption = "text",
) -> None:
    """Bring the store's tables to this version; safe to repeat. Exit codes: 0 done, 1 failed, 2 usage."""
    from rankscope_ingest.migrate import run

    options = {"clickhouse_url": clickhouse_url, "log_format": log_format}
    settings = _environment(options)
    _configure(settings)
    _work_inside(clickhouse_url)
    _reporting(lambda: asyncio.run(_print_applied(run, settings)))


async def _print_applied(run: Callable[[Mapping[str, str]], Awaitable[list[str]]], settings: Mapping[str, str]) -> None:
    applied = await run(settings)
    typer.echo(f"applied: {', '.join(applied)}" if applied else "nothing to apply: the tables are of this version")


def _run(serve: Serve, options: Mapping[str, str]) -> None:
    settings = _environment(options)
    _configure(settings)
    _reporting(lambda: asyncio.run(_until_signal(serve, settings)))


async def _until_signal(serve: Serve, settings: Mapping[str, str]) -> None:
    """Runs a service until SIGTERM or SIGINT, then lets it end in order."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)


def _work_inside(clickhouse_url: str) -> None:
    """Makes a chDB folder the working directory: chDB writes a cache folder where it runs."""
    from rankscope_ingest.clickhouse import folder_of

    folder = folder_of(SecretStr(clickhouse_url))
    if folder is not None and folder.is_absolute():
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)


def _environment(options: Mapping[str, str]) -> dict[str, str]:
    """The process's environment with the options over it."""
    return {**os.environ, **{env_name(field): value for field, value in options.items()}}


def _configure(settings: Mapping[str, str]) -> None:
    from rankscope_ingest.logs import configure_logging

    _reporting(lambda: configure_logging(MigrateSettings.read(settings).log_format))


def _reporting(work: Callable[[], None]) -> None:
    """Turns our errors into one sentence on stderr and exit code 1."""
    try:
        work()
    except IngestError as error:
        typer.echo(f"rankscope: {error}", err=True)
        raise typer.Exit(1) from error
    except BaseExceptionGroup as group:
        typer.echo(f"rankscope: {'; '.join(str(error) for error in group.exceptions)}", err=True)
        raise typer.Exit(1) from group
