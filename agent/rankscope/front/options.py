"""Where the front listens and whom it asks for a key."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import ConfigError
from rankscope.up import exposure_fault, server_context
from rankscope_proto.keys import KeyFileError, KeyRing

DEFAULT_PORT = 8472


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """How a front is reached.

    Attributes:
        host: The address to listen on, without brackets and port.
        port: 1–65535; 0: any free one.
        keys: Key file; None: no key is asked for.
        tls_cert: File of the certificate (PEM); None: plain text.
        tls_key: File of its private key (PEM); None: it is in `tls_cert`.
        is_insecure: Whether everybody who can reach it is trusted.
        project: Of requests that name none, with keys of several projects or without keys.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    keys: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    is_insecure: bool = False
    project: str = "default"

    def check(self) -> None:
        """Refuse what must not be served.

        Raises:
            ConfigError: it would listen beyond loopback without keys or without TLS, or TLS is given by half.
        """
        fault = exposure_fault(
            self.host,
            has_keys=self.keys is not None,
            has_tls=self.tls_cert is not None,
            is_insecure=self.is_insecure,
        )
        if fault:
            raise ConfigError(f"--http {self.host} is refused: {fault}")
        if self.tls_key and not self.tls_cert:
            raise ConfigError("--http-tls-key goes with --http-tls-cert")

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
        return server_context(str(self.tls_cert), str(self.tls_key or ""))
