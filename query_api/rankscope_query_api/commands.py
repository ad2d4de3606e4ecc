"""`rankscope query-service`: the service as a process of its own."""

import asyncio
import json
import logging
import os
import signal
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from rankscope.up import UpError
from rankscope_query_api.errors import QueryError, SettingsError
from rankscope_query_api.service import serve
from rankscope_query_api.settings import Settings

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def _help(field: str) -> str:
    return Settings.model_fields[field].description or ""


class NotServingError(UpError):
    """The service did not start, or ended by a fault."""

    def __init__(self, error: QueryError) -> None:
        super().__init__(error.message, hint=error.hint or "")
        self.code = error.code


class _JsonLines(logging.Formatter):
    """One JSON object a line; what was given as `extra` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        head = {"time": self.formatTime(record), "level": record.levelname.lower(), "logger": record.name}
        trace = {"exception": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps({**head, "message": record.getMessage(), **fields, **trace}, default=str)


def query_service(  # noqa: PLR0913 - one for each option
    clickhouse_url: Annotated[
        str | None,
        typer.Option(
            envvar="RANKSCOPE_CLICKHOUSE_URL",
            help="The store: http(s)://user:password@host:port/database or chdb:///absolute/folder.",
        ),
    ] = None,
    *,
    listen: Annotated[
        str | None, typer.Option(envvar="RANKSCOPE_QUERY_LISTEN", help="Address and port, 127.0.0.1:8470 by default.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(envvar="RANKSCOPE_KEYS", help=_help("keys"), show_default="no key is asked for")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(envvar="RANKSCOPE_TLS_CERT", help=_help("tls_cert"))] = None,
    tls_key: Annotated[Path | None, typer.Option(envvar="RANKSCOPE_TLS_KEY", help=_help("tls_key"))] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(envvar="RANKSCOPE_TLS_CLIENT_CA", help=_help("tls_client_ca"))
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", envvar="RANKSCOPE_INSECURE", help=_help("insecure"))] = False,
    log_format: Annotated[str, typer.Option(envvar="RANKSCOPE_LOG_FORMAT", help="text or json.")] = "text",
    as_json: Annotated[
        bool, typer.Option("--json", envvar="RANKSCOPE_JSON", help="Errors and log as JSON, one object a line.")
    ] = False,
) -> None:
    """Serve runs, step trees, tensor statistics and TQL over HTTP, from a store that a writer fills.

    Exit codes: 0 stopped, 1 failed, 2 wrong usage or settings.
    """
    _set_up_logging(log_format, as_json=as_json)
    given = {
        "RANKSCOPE_CLICKHOUSE_URL": clickhouse_url,
        "RANKSCOPE_QUERY_LISTEN": listen,
        "RANKSCOPE_KEYS": keys,
        "RANKSCOPE_TLS_CERT": tls_cert,
        "RANKSCOPE_TLS_KEY": tls_key,
        "RANKSCOPE_TLS_CLIENT_CA": tls_client_ca,
        "RANKSCOPE_INSECURE": insecure or None,
    }
    settings = dict(os.environ) | {name: str(value) for name, value in given.items() if value is not None}
    try:
        _work_inside(Settings.from_environment(settings).clickhouse_url.get_secret_value())
        asyncio.run(_until_signalled(settings))
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error
    except QueryError as error:
        raise NotServingError(error) from error


def _work_inside(url: str) -> None:
    """Makes a chDB folder the working directory: chDB writes a cache folder where it runs."""
    parts = urlsplit(url)
    if parts.scheme == "chdb" and Path(parts.path).is_dir():
        os.chdir(parts.path)


async def _until_signalled(settings: dict[str, str]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)


def _set_up_logging(log_format: str, *, as_json: bool) -> None:
    if log_format not in ("text", "json"):
        raise typer.BadParameter(f"{log_format!r} is neither text nor json", param_hint="--log-format")
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(_JsonLines() if as_json or log_format == "json" else plain)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
