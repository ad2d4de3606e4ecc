"""Ports on loopback: the usual ones, and the next free ones when something else sits there."""

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator
from typing import Self

from rankscope.up._errors import UpError

LOOPBACK = "127.0.0.1"
QUERY_PORT = 8470
GATEWAY_PORT = 8471
HTTP_INGEST_PORT = 8472
RESERVED = frozenset({QUERY_PORT, GATEWAY_PORT, HTTP_INGEST_PORT})
"""A search for a free port does not land on another part's usual one."""

SEARCH = 200


class PortClaims:
    """The ports of one server, from when they are chosen to its end.

    Between finding a port free and listening on it, another server may find the same. So a port is claimed by a
    name in the kernel's abstract socket namespace, which has the reach of ports (a network namespace, all users)
    and ends with its process.
    """

    def __init__(self) -> None:
        self._claims = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._claims.close()

    def take(self, wanted: int, host: str = LOOPBACK) -> int:
        """`wanted` if it is free, else the next port that is free and nobody's usual one.

        Args:
            wanted: 1–65535, or 0 for any free port.
            host: The address on which to listen, without brackets.

        Raises:
            UpError: none of the next 200 ports is free.
        """
        later = (port for port in range(wanted + 1, min(wanted + SEARCH, 65536)) if port not in RESERVED)
        for port in (wanted, *later) if wanted else _any_ports():
            if self._claim(port, host):
                return port
        raise UpError(
            f"no free port from {wanted} on", hint="name a free one with --query-port, --gateway-port and --http-port"
        )

    def _claim(self, port: int, host: str) -> bool:
        if not _is_free(port, host):
            return False
        claim = socket.socket(socket.AF_UNIX)
        # A port of one address is another port on the next; all addresses (0.0.0.0) have loopback's.
        address = ipaddress.ip_address(host)
        whose = "" if address.is_loopback or address.is_unspecified else f"{host}-"
        try:
            claim.bind(f"\0rankscope-port-{whose}{port}")
        except OSError:
            claim.close()
            return False
        self._claims.enter_context(claim)
        return True


def any_free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _any_ports() -> Iterator[int]:
    while True:
        yield any_free_port()


def _is_free(port: int, host: str) -> bool:
    """Whether the port can be listened on there.

    Raises:
        UpError: The address is not this machine's.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # With SO_REUSEADDR only a listener stands in the way, not the closed connections of a server just stopped.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise UpError(f"{host} is no address of this machine", hint="`ip address` lists them") from error
            return False
    return True
