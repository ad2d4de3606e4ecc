"""The options of `rankscope agent` that say how its HTTP ingest is reached."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope._settings import Settings
from rankscope._tracing_options import TracingOptions
from rankscope.up import HTTP_INGEST_PORT, require

if TYPE_CHECKING:
    from rankscope.front import Front

Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        envvar="RANKSCOPE_HTTP_LISTEN",
        metavar="ADDRESS",
        help=f"Take trace events over HTTP too, at host:port; without a port at {HTTP_INGEST_PORT}.",
        show_default="not over HTTP",
    ),
]
HttpKeys = Annotated[
    Path | None,
    typer.Option("--http-keys", envvar="RANKSCOPE_KEYS", help="With --http: the key file; senders need a key then."),
]
HttpTlsCert = Annotated[
    Path | None,
    typer.Option(
        "--http-tls-cert", envvar="RANKSCOPE_HTTP_TLS_CERT", help="With --http: file of the certificate (PEM)."
    ),
]
HttpTlsKey = Annotated[
    Path | None,
    typer.Option("--http-tls-key", envvar="RANKSCOPE_HTTP_TLS_KEY", help="With --http: file of its private key (PEM)."),
]

HttpTlsClientCa = Annotated[
    Path | None,
    typer.Option(
        "--http-tls-client-ca",
        envvar="RANKSCOPE_HTTP_TLS_CLIENT_CA",
        help="With --http: file of the authorities (PEM) of clients' certificates.",
    ),
]


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What was said of HTTP, as it was said."""

    address: str | None
    keys: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None

    def front(self, settings: Settings) -> "Front | None":
        """The front; None: none is asked for.

        Raises:
            ConfigError: it must not listen so, or cannot.
            MissingExtraError: its packages are not installed.
        """
        if self.address is None:
            return None
        require("rankscope agent --http", "orjson", "starlette", "uvicorn", extra="server")
        from rankscope.front import (  # not at the top: an agent without it loads no HTTP server
            Front,
            FrontOptions,
            host_and_port,
        )

        host, port = host_and_port(self.address)
        options = FrontOptions(
            host,
            port,
            keys=self.keys,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_client_ca=self.tls_client_ca,
            is_insecure=settings.insecure,
            project=settings.project,
        )
        return Front(options, settings, redactor=TracingOptions.of(settings).redactor)
