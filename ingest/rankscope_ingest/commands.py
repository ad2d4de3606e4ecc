"""The ingest subcommands of `rankscope`: gateway, writer, migrate.

Each option is a setting of the same name; an option beats the environment. The services are
imported inside the commands: the gateway must not pay for the store's driver, nor `--help` for either.
Errors pass through: `rankscope.cli` renders every tier's in one way, and chooses the exit status.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from rankscope_ingest.errors import CannotStart
from rankscope_ingest.settings import (
    DEFAULT_CLICKHOUSE_URL,
    DEFAULT_REDIS_URL,
    GatewaySettings,
    LogSettings,
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
KeysOption = Annotated[Path | None, typer.Option(envvar="RANKSCOPE_KEYS", help=_help(GatewaySettings, "keys"))]
TlsCertOption = Annotated[
    Path | None, typer.Option(envvar="RANKSCOPE_TLS_CERT", help=_help(GatewaySettings, "tls_cert"))
]
TlsKeyOption = Annotated[Path | None, typer.Option(envvar="RANKSCOPE_TLS_KEY", help=_help(GatewaySettings, "tls_key"))]
TlsClientCaOption = Annotated[
    Path | None, typer.Option(envvar="RANKSCOPE_TLS_CLIENT_CA", help=_help(GatewaySettings, "tls_client_ca"))
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", envvar="RANKSCOPE_INSECURE", help=_help(GatewaySettings, "insecure"))
]
AsJson = Annotated[bool, typer.Option("--json", envvar="RANKSCOPE_JSON", help="Errors and log lines as JSON.")]
REDIS_URL = DEFAULT_REDIS_URL.get_secret_value()
CLICKHOUSE_URL = DEFAULT_CLICKHOUSE_URL.get_secret_value()


def gateway(  # noqa: PLR0913 - one for each option
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
    keys: KeysOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    insecure: InsecureOption = False,
    metrics_listen: Annotated[
        str,
        typer.Option(envvar="RANKSCOPE_GATEWAY_METRICS_LISTEN", help=_help(GatewaySettings, "gateway_metrics_listen")),
    ] = "",
    log_format: LogFormatOption = "text",
    as_json: AsJson = False,
) -> None:
    """Accept batches over gRPC and pass them to the broker. Exit codes: 0 stopped, 1 failed, 2 usage."""
    from rankscope_ingest.gateway import serve

    options = {
        "gateway_listen": listen,
        "redis_url": redis_url,
        "shard_budget_bytes": str(shard_budget_bytes),
        "keys": _text(keys),
        "tls_cert": _text(tls_cert),
        "tls_key": _text(tls_key),
        "tls_client_ca": _text(tls_client_ca),
        "insecure": str(insecure),
        "gateway_metrics_listen": metrics_listen,
        "log_format": "json" if as_json else log_format,
    }
    _run(serve, options)


def writer(
    redis_url: RedisUrlOption = REDIS_URL,
    clickhouse_url: ClickHouseUrlOption = CLICKHOUSE_URL,
    *,
    migrate: Annotated[bool, typer.Option(envvar="RANKSCOPE_MIGRATE", help=_help(WriterSettings, "migrate"))] = False,
    metrics_listen: Annotated[
        str,
        typer.Option(envvar="RANKSCOPE_WRITER_METRICS_LISTEN", help=_help(WriterSettings, "writer_metrics_listen")),
    ] = "",
    log_format: LogFormatOption = "text",
    as_json: AsJson = False,
) -> None:
    """Write accepted batches to the store. Exit codes: 0 stopped, 1 failed, 2 usage."""
    from rankscope_ingest.writer import serve

    options = {
        "redis_url": redis_url,
        "clickhouse_url": clickhouse_url,
        "migrate": str(migrate),
        "writer_metrics_listen": metrics_listen,
        "log_format": "json" if as_json else log_format,
    }
    _work_inside(WriterSettings.read(_environment(options)).clickhouse_url)
    _run(serve, options)


def migrate(
    clickhouse_url: ClickHouseUrlOption = CLICKHOUSE_URL,
    log_format: LogFormatOption = "text",
    *,
    as_json: Annotated[
        bool, typer.Option("--json", envvar="RANKSCOPE_JSON", help="What was applied as one JSON document.")
    ] = False,
) -> None:
    """Bring the store's tables to this version; safe to repeat. Exit codes: 0 done, 1 failed, 2 usage."""
    from rankscope_ingest.migrate import run

    options = {"clickhouse_url": clickhouse_url, "log_format": "json" if as_json else log_format}
    settings = _environment(options)
    _configure(settings)
    _work_inside(MigrateSettings.read(settings).clickhouse_url)
    applied = asyncio.run(run(settings))
    typer.echo(json.dumps({"applied": applied}, indent=2) if as_json else _told(applied))


def _text(path: Path | None) -> str:
    """A path as a setting; an empty one counts as not set."""
    return "" if path is None else str(path)


def _told(applied: list[str]) -> str:
    return f"applied: {', '.join(applied)}" if applied else "nothing to apply: the tables are of this version"


def _run(serve: Serve, options: Mapping[str, str]) -> None:
    settings = _environment(options)
    _configure(settings)
    asyncio.run(_until_signal(serve, settings))


async def _until_signal(serve: Serve, settings: Mapping[str, str]) -> None:
    """Runs a service until SIGTERM or SIGINT, then lets it end in order."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)


def _work_inside(url: SecretStr) -> None:
    """Makes a chDB folder the working directory: chDB writes a cache folder where it runs."""
    from rankscope_ingest.clickhouse import folder_of

    folder = folder_of(url)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
    except OSError as error:
        raise CannotStart(
            f"cannot work in {folder}: {error.strerror}; set RANKSCOPE_CLICKHOUSE_URL to another"
        ) from error


def _environment(options: Mapping[str, str]) -> dict[str, str]:
    """The process's environment with the options over it."""
    return {**os.environ, **{env_name(field): value for field, value in options.items()}}


def _configure(settings: Mapping[str, str]) -> None:
    from rankscope_ingest.logs import configure_logging

    configure_logging(LogSettings.read(settings).log_format)
