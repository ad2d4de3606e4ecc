"""The two kinds of address this service is given, checked when the settings are read, and what may be shown of them.

A URL that passes here makes no driver stumble: clickhouse-connect takes any scheme for http, and answers a port that
is no number with a ValueError and a query part with a TypeError, at the first query.
"""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

STORE_SHAPES = "write http(s)://user:password@host:8123/database or chdb:///absolute/folder"

_LISTEN = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s/]+):(\d{1,5})")
_MAX_PORT = 65_535


def checked_store_url(url: str) -> str:
    """The URL, if it names a store.

    Raises:
        ValueError: It does not; the text says why and holds nothing of the URL that could be a secret.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"its host or port cannot be read; {STORE_SHAPES}") from None
    if problem := _store_problem(parts, port):
        raise ValueError(f"{problem}; {STORE_SHAPES}")
    return url


def _store_problem(parts: SplitResult, port: int | None) -> str:
    if parts.query or parts.fragment or "?" in parts.path:
        return "it has a part behind '?' or '#', which is not read"
    if parts.scheme == "chdb":
        folder_is_whole = not parts.netloc and parts.path.startswith("/") and parts.path.strip("/")
        return "" if folder_is_whole else "its folder is not absolute"
    if parts.scheme not in {"http", "https"}:
        return f"{parts.scheme[:20]!r} is no scheme of a store"
    if not parts.hostname:
        return "it names no host"
    return "it has no usable port" if port == 0 else ""


def shown_store_url(url: str) -> str:
    """A checked URL without the user and the password."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def host_and_port(listen: str) -> tuple[str, int]:
    """The parts of `host:port` or `[IPv6]:port`, the address without its brackets.

    Raises:
        ValueError: It is neither, or the port is beyond 65535.
    """
    found = _LISTEN.fullmatch(listen)
    if found is None or int(found[2]) > _MAX_PORT:
        raise ValueError(
            f"{listen!r} is no address and port; write 127.0.0.1:8470 or [::1]:8470, with a port up to {_MAX_PORT}"
        )
    host = found[1].strip("[]")
    if found[1].startswith("["):
        ipaddress.IPv6Address(host)
    return host, int(found[2])
