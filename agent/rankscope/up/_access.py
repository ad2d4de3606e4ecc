"""Who may reach what from where: the rule for those who listen, and the key and certificates of those who ask.

One rule holds for every tier: what listens beyond loopback asks for keys and speaks TLS, unless its operator says that
the network is trusted. And one for every client: a key never travels in plain text beyond loopback, unless the same is
said. Keys come from the environment only: a command line is in every `ps`.
"""

import re
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from rankscope._plaintext import is_loopback_host
from rankscope.errors import ConfigError
from rankscope.up._errors import UpError
from rankscope_proto.keys import masked

KEY = "RANKSCOPE_KEY"
INSECURE = "RANKSCOPE_INSECURE"
_TRUE_WORDS = frozenset({"1", "true", "yes", "on", "t", "y"})
_SENDABLE = re.compile(r"[!-~]+", re.ASCII)


class PlainTextKeyError(UpError):
    """A key would have travelled in plain text beyond loopback."""

    code = "plain_text_key"


@dataclass(frozen=True, slots=True)
class Remedies:
    """What a tier is told to be given, in its own options.

    Attributes:
        keys: Where it asks for no keys.
        tls: Where it speaks no TLS.
        trust: How it is told that the network is trusted.
    """

    keys: str = "keys (--keys, RANKSCOPE_KEYS; `rankscope keys create` makes them)"
    tls: str = "a certificate (--tls-cert, RANKSCOPE_TLS_CERT; --tls-key, RANKSCOPE_TLS_KEY)"
    trust: str = f"say --insecure ({INSECURE}=1)"


_REMEDIES = Remedies()


def exposure_fault(
    host: str, *, has_keys: bool, has_tls: bool, is_insecure: bool, remedies: Remedies = _REMEDIES
) -> str:
    """Why a tier must not listen on `host` as it is set up; "" where it may.

    Args:
        host: The address, without brackets and port.
        has_keys: Whether it asks for keys.
        has_tls: Whether it speaks TLS.
        is_insecure: Whether its operator said that the network is trusted.
        remedies: What it is told to be given.
    """
    needed = (("keys", remedies.keys, has_keys), ("TLS", remedies.tls, has_tls))
    lacking = {word: remedy for word, remedy, is_there in needed if not is_there}
    if not lacking or is_insecure or is_loopback_host(host):
        return ""
    return (
        f"it would listen on {host}, beyond loopback, without {' and without '.join(lacking)}: "
        f"give it {' and '.join(lacking.values())}, or {remedies.trust} where everybody who can reach it is trusted"
    )


@dataclass(frozen=True, slots=True)
class Access:
    """What a client brings along.

    Attributes:
        key: The API key; empty: none.
        ca: File of authorities (PEM) that the server's certificate must be from; empty: the system's.
        cert: File of the client's own certificate (PEM); empty: none.
        cert_key: File of its private key (PEM); empty: it is in `cert`.
        is_insecure: Whether the key may travel in plain text beyond loopback.
    """

    key: str = field(default="", repr=False)
    ca: str = ""
    cert: str = ""
    cert_key: str = ""
    is_insecure: bool = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """What the environment says.

        Raises:
            ConfigError: the key has characters that no key has; its text is not told.
        """
        key = environ.get(KEY, "").strip()
        if key and not _SENDABLE.fullmatch(key):
            raise ConfigError(f"{KEY} is no API key: it has blanks or characters beyond ASCII; paste it again, whole")
        return cls(
            key=key,
            ca=environ.get("RANKSCOPE_TLS_CA", ""),
            cert=environ.get("RANKSCOPE_TLS_CERT", ""),
            cert_key=environ.get("RANKSCOPE_TLS_KEY", ""),
            is_insecure=environ.get(INSECURE, "").strip().lower() in _TRUE_WORDS,
        )

    def headers(self, url: str) -> dict[str, str]:
        """The headers of a request to `url`, which `check_url` let pass.

        Raises:
            PlainTextKeyError: the key would be read by everybody on the way.
        """
        if not self.key:
            return {}
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" and not self.is_insecure and not is_loopback_host(parts.hostname or ""):
            raise PlainTextKeyError(
                f"the key {masked(self.key)} is not sent to {url}: it would travel in plain text",
                hint=f"use https://, or set {INSECURE}=1 where everybody on the way is trusted",
            )
        return {"Authorization": f"Bearer {self.key}"}

    def context(self) -> ssl.SSLContext:
        """How a server's certificate is checked, and the client's own shown.

        Raises:
            ConfigError: a file cannot be used; names it.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"RANKSCOPE_TLS_CA is {self.ca!r}: {_ssl_words(error)}") from error
        try:
            if self.cert:
                context.load_cert_chain(self.cert, self.cert_key or None)
        except (OSError, ValueError) as error:
            files = f"RANKSCOPE_TLS_CERT is {self.cert!r}, RANKSCOPE_TLS_KEY {self.cert_key!r}"
            raise ConfigError(f"{files}: {_ssl_words(error)}") from error
        return context


def server_context(cert: str, key: str, *, client_ca: str = "") -> ssl.SSLContext:
    """What a server speaks TLS with.

    Args:
        cert: File of its certificate (PEM), the chain behind it.
        key: File of the private key (PEM); empty: it is in `cert`.
        client_ca: File of authorities (PEM) one of which every client's certificate must be from; empty: none is asked.

    Raises:
        ConfigError: a file cannot be used; names the files.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key or None)
        if client_ca:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        files = f"certificate {cert!r}, key {key!r}" + (f", client authorities {client_ca!r}" if client_ca else "")
        raise ConfigError(f"TLS cannot be set up with {files}: {_ssl_words(error)}") from error
    return context


def _ssl_words(error: Exception) -> str:
    """What OpenSSL or the system said, without the place in their source."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
