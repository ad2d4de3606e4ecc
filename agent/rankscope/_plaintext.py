"""What is this machine's own, and so where an API key may travel unencrypted: there, and where somebody said so."""

from ipaddress import ip_address

from rankscope.errors import ConfigError

TLS = "https://"
"""What an address begins with that is reached by TLS."""


def is_loopback_host(host: str) -> bool:
    """Whether an address or a name, in brackets or not, is this machine by its loopback interface only."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_loopback(endpoint: str) -> bool:
    """Whether an address, `host:port` with or without `https://`, is surely this machine's own."""
    return is_loopback_host(endpoint.removeprefix(TLS).rpartition(":")[0])


def refuse_plaintext_key(endpoint: str, *, is_insecure: bool) -> None:
    """Refuse to send a key to an address where others could read it.

    Args:
        endpoint: `host:port`, or `https://host:port`.
        is_insecure: Whether somebody said that it may go.

    Raises:
        ConfigError: it would cross a network in plaintext; says what to do.
    """
    if endpoint.startswith(TLS) or is_insecure or is_loopback(endpoint):
        return
    raise ConfigError(
        f"the API key would go to {endpoint} in plaintext: write {TLS}{endpoint}, "
        "or set RANKSCOPE_INSECURE=1 where nobody else is on that network"
    )
