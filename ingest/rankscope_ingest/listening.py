"""How the gateway listens: never beyond this machine without keys and TLS, unless somebody said so.

Certificates are read again when their files change, so a renewed one needs no restart; a pair that
does not fit is refused at the start, and later leaves the last good one in use.
"""

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio

from rankscope.up import exposure_fault
from rankscope_ingest.addresses import host_and_port, is_local
from rankscope_ingest.errors import CannotStart, ConfigError
from rankscope_ingest.settings import GatewaySettings

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_SETTING = "RANKSCOPE_GATEWAY_LISTEN"


def must_be_safe(settings: GatewaySettings) -> None:
    """Returns where the gateway may listen as it is told to.

    Raises:
        ConfigError: Other machines would reach it without keys or without TLS; or only a part of TLS is set.
    """
    listen = settings.gateway_listen
    if not listen.startswith("unix:"):
        host_and_port(listen, setting=_SETTING)
    for name, path in (("KEY", settings.tls_key), ("CLIENT_CA", settings.tls_client_ca)):
        if path and not settings.tls_cert:
            raise ConfigError(f"RANKSCOPE_TLS_{name} is set, and RANKSCOPE_TLS_CERT is not: set it too, or neither")
    if is_local(listen):
        return
    host, has_keys, has_tls = listen.rpartition(":")[0], settings.keys is not None, settings.tls_cert is not None
    fault = exposure_fault(host, has_keys=has_keys, has_tls=has_tls, is_insecure=settings.insecure)
    if fault:
        raise ConfigError(f"{_SETTING} is {listen!r}: {fault}")
    if not (has_keys and has_tls):
        logger.warning("insecure, as asked for: %s, with keys %s, with TLS %s", listen, has_keys, has_tls)


def bind(server: grpc.aio.Server, listen: str, *, credentials: grpc.ServerCredentials | None) -> None:
    """Binds the server to its address; without credentials in plaintext.

    Raises:
        CannotStart: The port is taken, or the address is not this machine's.
    """
    taken = CannotStart(
        f"cannot listen on {listen}: the port is taken or the address is not this machine's; set {_SETTING} to another"
    )
    try:
        port = server.add_secure_port(listen, credentials) if credentials else server.add_insecure_port(listen)
    except RuntimeError as error:
        raise taken from error
    if port == 0:
        raise taken


def credentials_of(settings: GatewaySettings) -> grpc.ServerCredentials | None:
    """What the gateway shows and asks for in a TLS handshake; None: it speaks plaintext.

    Raises:
        ConfigError: A certificate, a key or the clients' authorities cannot be used.
    """
    if settings.tls_cert is None:
        return None
    key = settings.tls_key or settings.tls_cert
    certificates = Certificates(settings.tls_cert, key, client_ca=settings.tls_client_ca)
    return grpc.dynamic_ssl_server_credentials(
        certificates.read(),
        cast("Callable[[], grpc.ServerCertificateConfiguration]", certificates.fetch),  # None: as before
        require_client_authentication=settings.tls_client_ca is not None,
    )


class Certificates:
    """The files of TLS, read again when they change.

    Args:
        cert: PEM, the server's own certificate first.
        key: PEM, not encrypted.
        client_ca: PEM, the authorities that sign clients; None: clients need no certificate.
    """

    def __init__(self, cert: Path, key: Path, *, client_ca: Path | None) -> None:
        self._cert = cert
        self._key = key
        self._client_ca = client_ca
        self._mark: object = None

    def read(self) -> grpc.ServerCertificateConfiguration:
        """What the files hold now.

        Raises:
            ConfigError: One cannot be read, or key and certificate do not fit.
        """
        self._mark = self._marks()
        for name, path in self._files().items():
            try:
                path.read_bytes()
            except OSError as error:
                raise ConfigError(f"{name} is {str(path)!r}: {error.strerror}") from error
        self._must_fit()
        pair = (self._key.read_bytes(), self._cert.read_bytes())
        authorities = self._client_ca.read_bytes() if self._client_ca else None
        return grpc.ssl_server_certificate_configuration([pair], authorities)

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """What the files hold, where they changed; gRPC asks at each handshake."""
        if self._marks() == self._mark:
            return None
        try:
            return self.read()
        except (ConfigError, OSError) as error:
            logger.error("the certificates of before stay in use: %s", error)
            return None

    def _must_fit(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._cert, self._key, password=lambda: "")  # never ask on a terminal
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"RANKSCOPE_TLS_CERT {str(self._cert)!r} and RANKSCOPE_TLS_KEY {str(self._key)!r} cannot be used "
                f"({error}): they are PEM, of one pair, and the key is not encrypted"
            ) from error
        if self._client_ca is None:
            return
        try:
            context.load_verify_locations(self._client_ca)
        except ssl.SSLError as error:
            raise ConfigError(
                f"RANKSCOPE_TLS_CLIENT_CA is {str(self._client_ca)!r}, which holds no certificate in PEM"
            ) from error

    def _files(self) -> dict[str, Path]:
        files = {"RANKSCOPE_TLS_CERT": self._cert, "RANKSCOPE_TLS_KEY": self._key}
        return {**files, "RANKSCOPE_TLS_CLIENT_CA": self._client_ca} if self._client_ca else files

    def _marks(self) -> object:
        try:
            return [(path.stat().st_mtime_ns, path.stat().st_ino) for path in self._files().values()]
        except OSError:
            return None
