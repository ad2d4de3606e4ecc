"""The face of a server for other nodes: a gateway and a query service beside those on loopback, with keys and TLS.

They are parts of their own, since who is on this machine is let in without a key, as ever: `up.json` and the loopback
ports stay as they are without `--listen`. Who comes from elsewhere brings a key, whatever else is said.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import ConfigError
from rankscope.up._access import exposure_fault, server_context
from rankscope.up._errors import UpError
from rankscope.up._folder import DataFolder
from rankscope.up._ingest import ingest_part
from rankscope.up._parts import ChildPart, Part, TaskPart
from rankscope.up._services import load_service
from rankscope_proto.keys import EVERY_PROJECT, KeyFile, KeyFileError, KeyRing, Scope

FIRST_KEY = "first"
"""What the list calls the key that is made with the file."""

ALLOWANCE_S = 10.0

CLOSED: Mapping[str, str] = {
    "RANKSCOPE_KEYS": "",
    "RANKSCOPE_TLS_CERT": "",
    "RANKSCOPE_TLS_KEY": "",
    "RANKSCOPE_TLS_CLIENT_CA": "",
}
"""The settings of the parts on loopback: what the environment says of keys and certificates is not for them."""


@dataclass(frozen=True, slots=True)
class Public:
    """How a server is reached from other nodes.

    Attributes:
        host: The address to listen on, without brackets and port.
        keys: The key file.
        tls_cert: File of the certificate (PEM); empty: plain text.
        tls_key: File of its private key (PEM); empty: it is in `tls_cert`.
        tls_client_ca: File of the authorities (PEM) of clients; empty: clients need no certificate.
        is_insecure: Whether the network is trusted with keys in plain text.
    """

    host: str
    keys: Path
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    is_insecure: bool = False

    def check(self) -> None:
        """Refuse, before anything starts, what could not be served.

        Raises:
            ConfigError: The address is none, there is no TLS and none is waived, or a certificate cannot be used.
        """
        if not _is_address(self.host):
            raise ConfigError(f"--listen {self.host!r} is no address of this machine: write one such as 0.0.0.0 or ::")
        has_tls = bool(self.tls_cert)
        fault = exposure_fault(self.host, has_keys=True, has_tls=has_tls, is_insecure=self.is_insecure)
        if fault:
            raise ConfigError(f"--listen {self.host} is refused: {fault}")
        if has_tls:
            server_context(self.tls_cert, self.tls_key, client_ca=self.tls_client_ca)
        elif self.tls_key or self.tls_client_ca:
            raise ConfigError("--tls-key and --tls-client-ca go with --tls-cert")

    def first_key(self) -> str | None:
        """Make the key file where there is none, with a key to send and read with in every project.

        Returns:
            That key, which is written nowhere; None where there was a file.

        Raises:
            UpError: The file cannot be made, or one that is there cannot be read.
        """
        try:
            if self.keys.exists():
                KeyRing(self.keys)
                return None
            return KeyFile(self.keys).create([EVERY_PROJECT], [Scope.INGEST, Scope.READ], name=FIRST_KEY)[0]
        except KeyFileError as error:
            raise UpError(str(error)) from error

    def url(self, port: int) -> str:
        """The query service's URL, as other nodes call it."""
        return f"{'https' if self.tls_cert else 'http'}://{self._called(port)}"

    def endpoint(self, port: int) -> str:
        """The gateway, as other nodes' RANKSCOPE_ENDPOINT takes it."""
        return f"https://{self._called(port)}" if self.tls_cert else self._called(port)

    def address(self, port: int) -> str:
        """`host:port`, IPv6 in brackets."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def _called(self, port: int) -> str:
        """`host:port` for others; nobody can call 0.0.0.0, so the host's name stands for all addresses."""
        is_any = ipaddress.ip_address(self.host).is_unspecified
        return f"{socket.gethostname()}:{port}" if is_any else self.address(port)

    @property
    def covers_loopback(self) -> bool:
        """Whether a port that is taken here is taken on loopback too."""
        address = ipaddress.ip_address(self.host)
        return address.is_unspecified or address.is_loopback

    def settings(self) -> dict[str, str]:
        """What a tier is told of keys and certificates."""
        return {
            "RANKSCOPE_KEYS": str(self.keys),
            "RANKSCOPE_TLS_CERT": self.tls_cert,
            "RANKSCOPE_TLS_KEY": self.tls_key,
            "RANKSCOPE_TLS_CLIENT_CA": self.tls_client_ca,
            "RANKSCOPE_INSECURE": "1" if self.is_insecure else "",
            "RANKSCOPE_GATEWAY_METRICS_LISTEN": "",
        }


def public_parts(
    public: Public, folder: DataFolder, *, settings: Mapping[str, str], query_port: int, gateway_port: int
) -> Sequence[Part]:
    """The gateway and the query service for other nodes, in this order.

    Args:
        public: How they are reached.
        folder: The data folder; the gateway's log goes there.
        settings: Those of the parts on loopback.
        query_port: Port of the query service.
        gateway_port: Port of the gateway.
    """
    own = {
        **settings,
        **public.settings(),
        "RANKSCOPE_GATEWAY_LISTEN": public.address(gateway_port),
        "RANKSCOPE_QUERY_LISTEN": public.address(query_port),
        "RANKSCOPE_VIGIL_EVERY_S": "0",  # the service on loopback watches the runs
    }
    gateway = ChildPart(
        "public-gateway",
        environment={**os.environ, **own},
        folder=folder,
        answers=lambda: _accepts(public.host, gateway_port),
        allowance_s=ALLOWANCE_S,
        command="gateway",
    )
    query = TaskPart(
        "public-query-service",
        load_service("query-service"),
        settings=own,
        answers=lambda: _accepts(public.host, query_port),
        allowance_s=ALLOWANCE_S,
    )
    return gateway, query


def public_ingest(
    public: Public, folder: DataFolder, *, settings: Mapping[str, str], port: int, loopback_gateway: int
) -> Part:
    """The HTTP ingest for other nodes.

    Args:
        public: How it is reached.
        folder: The data folder.
        settings: Those of the parts on loopback.
        port: Its port.
        loopback_gateway: Port of the gateway on loopback, to which it sends.
    """
    return ingest_part(
        "public-http-ingest",
        folder,
        settings={**settings, **public.settings()},
        listen=public.address(port),
        gateway_port=loopback_gateway,
        answers=lambda: _accepts(public.host, port),
    )


async def _accepts(host: str, port: int) -> bool:
    """Whether something accepts connections there; the parts on loopback say whether it can answer."""
    address = ipaddress.ip_address(host)
    loopback = "::1" if address.version == 6 else "127.0.0.1"
    _, writer = await asyncio.open_connection(loopback if address.is_unspecified else host, port)
    writer.close()
    return True


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
