"""Which gateway a spool's batches go to.

Where its trainer was told to; a trainer that was told nothing leaves it to the agent. So one agent serves runs of
several gateways, and never takes data to another gateway than the one it was recorded for. Who drains by hand may
say otherwise.
"""

import threading
from collections.abc import Callable, Sequence

from rankscope._connection import Access, Connection
from rankscope.errors import Unavailable

Endpoints = tuple[str, ...]


class Ways:
    """Connections, one for each set of gateways, shared by all spools that go there.

    Args:
        access: Certificates; keys come with the spools.
        fallback: Gateways for what was recorded without any; asked each time, since a server may move.
        instead: Gateways for everything, whatever was recorded.
    """

    def __init__(self, access: Access, fallback: Callable[[], Endpoints], *, instead: Sequence[str] = ()) -> None:
        self._access = access
        self._fallback = fallback
        self._instead = tuple(instead)
        self._lock = threading.Lock()
        self._connections: dict[Endpoints, Connection] = {}

    def connection(self, recorded: Endpoints) -> Connection:
        """The connection for a spool that was recorded for these gateways.

        Raises:
            Unavailable: no gateway is known.
        """
        endpoints = self._instead or recorded or self._fallback()
        if not endpoints:
            raise Unavailable(
                "no gateway is known: set RANKSCOPE_ENDPOINT to its host:port, or start one with `rankscope up`"
            )
        with self._lock:
            if endpoints not in self._connections:
                self._connections[endpoints] = Connection(endpoints, self._access)
            return self._connections[endpoints]

    def close(self) -> None:
        """End every call."""
        with self._lock:
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()
