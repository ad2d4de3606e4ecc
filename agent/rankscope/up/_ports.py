"""Ports on loopback: the usual ones, and the next free ones when something else sits there."""

import socket
from collections.abc import Collection

from rankscope.up._errors import UpError

QUERY_PORT = 8470
GATEWAY_PORT = 8471
HTTP_INGEST_PORT = 8472
RESERVED = frozenset({QUERY_PORT, GATEWAY_PORT, HTTP_INGEST_PORT})
"""A search for a free port does not land on another part's usual one."""

SEARCH = 200


def next_free(wanted: int, *, taken: Collection[int] = ()) -> int:
    """`wanted` if nothing listens there, else the next port that is free and nobody's usual one.

    Args:
        wanted: 1–65535, or 0 for any free port.
        taken: ports already given to other parts.

    Raises:
        UpError: none of the next 200 ports is free.
    """
    if wanted == 0:
        return _any_free(taken)
    later = (port for port in range(wanted + 1, min(wanted + SEARCH, 65536)) if port not in RESERVED)
    for port in (wanted, *later):
        if port not in taken and _is_free(port):
            return port
    raise UpError(f"no free port from {wanted} on", hint="name a free one with --query-port and --gateway-port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # With SO_REUSEADDR only a listener stands in the way, not the closed connections of a server just stopped.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _any_free(taken: Collection[int]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            return port
