"""Where the front listens and whom it asks for a key."""

import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import ConfigError
from rankscope.up import HTTP_INGEST_PORT, INSECURE, Remedies, exposure_fault, server_context
from rankscope_proto.keys import KeyFileError, KeyRing

MAX_PORT = 65_535
_REMEDIES = Remedies(keys="--http-keys", tls="--http-tls-cert", trust=f"set {INSECURE}=1")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s/]+)(?::(\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """How a front is reached.

    Attributes:
        host: The address to listen on, without brackets and port.
        port: 1–65535; 0: any free one.
        keys: Key file; None: no key is asked for.
        tls_cert: File of the certificate (PEM); None: plain text.
        tls_key: File of its private key (PEM); None: it is in `tls_cert`.
        tls_client_ca: File of the authorities (PEM) of clients; None: clients need no certificate.
        is_insecure: Whether everybody who can reach it is trusted.
        project: Of requests that name none, with keys of several projects or without keys.
    """

    host: str = "127.0.0.1"
    port: int = HTTP_INGEST_PORT
    keys: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    is_insecure: bool = False
    project: str = "default"

    def check(self) -> None:
        """Refuse what must not be served.

        Raises:
            ConfigError: it would listen beyond loopback without keys or without TLS, or TLS is given by half.
        """
        has_keys, has_tls = self.keys is not None, self.tls_cert is not None
        fault = exposure_fault(
            self.host, has_keys=has_keys, has_tls=has_tls, is_insecure=self.is_insecure, remedies=_REMEDIES
        )
        if fault:
            raise ConfigError(f"--http {self.host} is refused: {fault}")
        if (self.tls_key or self.tls_client_ca) and not self.tls_cert:
            raise ConfigError("--http-tls-key and --http-tls-client-ca go with --http-tls-cert")

    def ring(self) -> KeyRing | None:
        """The keys; None: none is asked for.

        Raises:
            ConfigError: their file cannot be read.
        """
        try:
            return KeyRing(self.keys) if self.keys else None
        except KeyFileError as error:
            raise ConfigError(str(error)) from error

    def tls(self) -> ssl.SSLContext | None:
        """What TLS is spoken with; None: plain text.

        Raises:
            ConfigError: a file cannot be used.
        """
        if self.tls_cert is None:
            return None
        return server_context(str(self.tls_cert), str(self.tls_key or ""), client_ca=str(self.tls_client_ca or ""))


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of an address as people write it: host, host:port, [IPv6]:port; the host without its brackets.

    Raises:
        ConfigError: it is none of these.
    """
    found = _ADDRESS.fullmatch(address)
    port = int(found[2] or HTTP_INGEST_PORT) if found else -1
    if found is None or port > MAX_PORT:
        raise ConfigError(f"--http {address!r} is no address: write one such as 127.0.0.1:{HTTP_INGEST_PORT}")
    return found[1].strip("[]"), port
