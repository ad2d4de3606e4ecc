"""Which gateway a spool's batches go to.

Where its trainer was told to; a trainer that was told nothing leaves it to the agent. So one agent serves runs of
several gateways, and never takes data to another gateway than the one it was recorded for. Who drains by hand may
say otherwise.
"""

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rankscope import _discovery
from rankscope._connection import Access, Connection
from rankscope._settings import Settings
from rankscope.errors import Unavailable

Endpoints = tuple[str, ...]


class Ways:
    """Connections, one for each set of gateways, shared by all spools that go there.

    Args:
        access: Certificates, and the key for what was recorded without one; it goes to the gateways below only.
        own: Gateways for what was recorded without any; empty: the server that runs over the data folder now.
        home: The data folder.
        instead: Gateways for everything, whatever was recorded.
        has_key_for_all: Whether the key is meant for every spool, wherever it goes.
    """

    def __init__(
        self,
        access: Access,
        own: Endpoints,
        *,
        home: Path,
        instead: Sequence[str] = (),
        has_key_for_all: bool = False,
    ) -> None:
        self._access = replace(access, key=None)
        self._key = access.key
        self._own = own
        self._home = home
        self._instead = tuple(instead)
        self._has_key_for_all = has_key_for_all
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

    def keys(self, folder: Path, recorded: Endpoints) -> tuple[str, ...]:
        """The keys to try for a spool: the one recorded with it, then our own, where its gateway is ours too."""
        keys: list[str] = []
        with contextlib.suppress(OSError):
            keys += (folder / "key").read_text().split()
        if self._key and (self._has_key_for_all or not recorded or recorded == self._own):
            keys.append(self._key)
        return tuple(dict.fromkeys(keys))

    def _fallback(self) -> Endpoints:
        if self._own:
            return self._own
        found = _discovery.read(self._home)  # each time: a server may move
        return (found.gateway,) if found else ()

    def close(self) -> None:
        """End every call."""
        with self._lock:
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()


def ways_of(settings: Settings, *, instead: Sequence[str] = (), has_key_for_all: bool = False) -> Ways:
    """The ways that settings mean."""
    access = Access(settings.key, settings.tls_ca, settings.tls_cert, settings.tls_key, insecure=settings.insecure)
    return Ways(access, settings.endpoint, home=settings.home, instead=instead, has_key_for_all=has_key_for_all)
