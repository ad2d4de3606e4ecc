"""The addresses the ingest tiers are given: checked when the settings are read, and fit for messages.

It promises that what passes makes no driver stumble (clickhouse-connect answers a port that is no
number with a ValueError and a query part with a TypeError, at the first query; it takes any scheme
for HTTP), and that no message holds a password.
"""

from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import SecretStr

from rankscope.up import is_loopback_host
from rankscope_ingest.errors import ConfigError

MAX_PORT = 65_535
STORE_FORMS = "write http(s)://user:password@host:8123/database or chdb:///absolute/folder"
BROKER_FORMS = "write redis://host:6379/0, rediss://… or unix:///path/to/socket"


def store_url(url: SecretStr) -> SecretStr:
    """The URL, if it names a store.

    Raises:
        ValueError: It does not; the text says why and shows no password.
    """
    parts = _parts_of(url, forms=STORE_FORMS)
    if parts.query or parts.fragment:
        raise ValueError(f"{shown(url)!r} has a part behind '?' or '#', which is not read; {STORE_FORMS}")
    is_server = parts.scheme in {"http", "https"} and parts.hostname and "/" not in parts.path.strip("/")
    if not is_server and not _is_folder(parts):
        raise ValueError(f"{shown(url)!r} names no store; {STORE_FORMS}")
    return url


def broker_url(url: SecretStr) -> SecretStr:
    """The URL, if it names a broker.

    Raises:
        ValueError: It does not; the text says why and shows no password.
    """
    parts = _parts_of(url, forms=BROKER_FORMS)
    is_server = parts.scheme in {"redis", "rediss"} and parts.hostname
    if not is_server and not (parts.scheme == "unix" and parts.path.startswith("/")):
        raise ValueError(f"{shown(url)!r} names no broker; {BROKER_FORMS}")
    return url


def _parts_of(url: SecretStr, *, forms: str) -> SplitResult:
    try:
        parts = urlsplit(url.get_secret_value())
        port = parts.port
    except ValueError:  # its text may hold the password: one with a '/' or a '#' in it is read as a port
        raise ValueError(f"its host or port cannot be read; {forms}") from None
    if port == 0:
        raise ValueError(f"{shown(url)!r} has port 0; {forms}")
    return parts


def _is_folder(parts: SplitResult) -> bool:
    return parts.scheme == "chdb" and not parts.netloc and parts.path.startswith("/") and bool(parts.path.strip("/"))


def shown(url: SecretStr) -> str:
    """A URL fit for messages: without its password, wherever it is."""
    try:
        parts = urlsplit(url.get_secret_value())
    except ValueError:
        return "***"
    if not parts.netloc and "@" in url.get_secret_value():  # what comes before an '@' may be a password
        return "***"
    who, at, where = parts.netloc.rpartition("@")
    user, colon, _ = who.partition(":")
    netloc = f"{user}{':***' if colon else ''}{at}{where}"
    hidden = {"netloc": netloc, "query": "***" if parts.query else "", "fragment": "***" if parts.fragment else ""}
    return urlunsplit(parts._replace(**hidden))


def host_and_port(listen: str, *, setting: str) -> tuple[str, int]:
    """Splits `host:port` (IPv6 in brackets).

    Raises:
        ConfigError: Not of that form.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ConfigError(f"{setting} is {listen!r}; write host:port, for example 127.0.0.1:8471")
    return host.strip("[]"), int(port)


def is_local(listen: str) -> bool:
    """Whether only this machine reaches an address of the form `host:port` or `unix:path`."""
    if listen.startswith("unix:"):
        return True
    return is_loopback_host(listen.rpartition(":")[0])
