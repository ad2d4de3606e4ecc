"""The options of `rankscope up` that say who may reach it from elsewhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli._errors import WrongCallError
from rankscope.up import DataFolder, Public

KEYS_FILE = "keys.json"

Listen = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Also serve other nodes, on this address of this machine (0.0.0.0: all), with keys and TLS.",
        show_default="this machine only",
    ),
]
Keys = Annotated[
    Path | None,
    typer.Option(
        envvar="RANKSCOPE_KEYS",
        help="With --listen: the key file; made if missing, and its first key printed.",
        show_default="keys.json in the data folder",
    ),
]
TlsCert = Annotated[
    Path | None, typer.Option(envvar="RANKSCOPE_TLS_CERT", help="With --listen: file of the certificate (PEM).")
]
TlsKey = Annotated[
    Path | None, typer.Option(envvar="RANKSCOPE_TLS_KEY", help="With --listen: file of its private key (PEM).")
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        envvar="RANKSCOPE_TLS_CLIENT_CA", help="With --listen: file of the authorities (PEM) of clients' certificates."
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", envvar="RANKSCOPE_INSECURE", help="With --listen: without TLS, in a trusted network."),
]
Retention = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=36_500,
        envvar="RANKSCOPE_RETENTION_DAYS",
        help="Days that rows are kept.",
        show_default="for good",
    ),
]


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """What was said of other nodes, as it was said."""

    listen: str | None
    keys: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    insecure: bool

    def public(self, folder: DataFolder) -> Public | None:
        """How other nodes reach the server; None: they do not.

        Raises:
            ConfigError: It cannot be served so.
        """
        if self.listen is None:
            return None
        if self.listen.rpartition(":")[2].isdigit() and self.listen.count(":") == 1:
            raise WrongCallError(
                f"--listen {self.listen!r} has a port: it is an address only",
                hint="--query-port, --gateway-port and --http-port",
            )
        tls = (self.tls_cert, self.tls_key, self.tls_client_ca)
        cert, key, client_ca = ("" if path is None else str(path.expanduser().absolute()) for path in tls)
        keys = (self.keys or folder.path / KEYS_FILE).expanduser().absolute()
        public = Public(
            host=self.listen.strip("[]"),
            keys=keys,
            tls_cert=cert,
            tls_key=key,
            tls_client_ca=client_ca,
            is_insecure=self.insecure,
        )
        public.check()
        return public


def arguments_of(public: Public | None) -> list[str]:
    """The options that say the same to another `rankscope up`."""
    if public is None:
        return []
    files = {"--tls-cert": public.tls_cert, "--tls-key": public.tls_key, "--tls-client-ca": public.tls_client_ca}
    given = [word for option, path in files.items() if path for word in (option, path)]
    insecure = ["--insecure"] if public.is_insecure else []
    return ["--listen", public.host, "--keys", str(public.keys), *given, *insecure]
