"""Which addresses findings may be told: checked when the settings are read."""

import ipaddress
from urllib.parse import urlsplit

_SHAPE = "write https://host/path, or http://127.0.0.1:port/path for one on this machine"


def checked_webhook_url(url: str) -> str:
    """The URL, if findings may be told there; empty: to nobody.

    Raises:
        ValueError: They may not; the text holds nothing of the URL that could be a secret.
    """
    if not url:
        return url
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(f"its host or port cannot be read; {_SHAPE}") from None
    if not usable or parts.scheme not in {"http", "https"} or not url.isascii() or any(map(str.isspace, url)):
        raise ValueError(f"it is no address of a web service; {_SHAPE}")
    if parts.username or parts.password:
        raise ValueError(f"it names a user, which is not sent; {_SHAPE}")
    if parts.scheme == "http" and not _is_here(parts.hostname or ""):
        raise ValueError(f"it would send findings in plain text over the network; {_SHAPE}")
    return url


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
