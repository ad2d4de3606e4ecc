"""Which gateway a spool's batches go to.

Where its trainer was told to, and with the certificates that it was told of; a trainer that was told nothing leaves
it to the agent. So one agent serves runs of several gateways, whoever started it, and never takes data to another
gateway than the one it was recorded for. Who drains by hand may say otherwise.
"""

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rankscope import _discovery
from rankscope._connection import Access, Connection
from rankscope._settings import Settings
from rankscope.errors import Unavailable
from rankscope.spool import SpoolHead, Trust

Endpoints = tuple[str, ...]


class Recorded(NamedTuple):
    """Where a spool goes and how, as its trainer was told."""

    endpoints: Endpoints = ()
    trust: Trust = Trust()

    @classmethod
    def of(cls, head: SpoolHead) -> "Recorded":
        """What a spool's head says of it."""
        return cls(head.endpoints, head.trust)


class Ways:
    """Connections, one for each set of gateways and way to reach them, shared by all spools that go there so.

    Args:
        access: Certificates for what was recorded without any, and the key for what was recorded without one; it
            goes to the gateways below only.
        own: Gateways for what was recorded without any; empty: the server that runs over the data folder now.
        home: The data folder.
        instead: Gateways for everything, whatever was recorded.
        has_key_for_all: Whether the key is meant for every spool, wherever it goes, and so are the certificates,
            where any is given: those recorded may be files of another machine.
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
        self._connections: dict[tuple[Endpoints, Access], Connection] = {}

    def endpoints(self, recorded: Recorded) -> Endpoints:
        """The gateways that a spool goes to now; none where none is known."""
        return self._instead or recorded.endpoints or self._fallback()

    def connection(self, recorded: Recorded) -> Connection:
        """The connection for a spool.

        Raises:
            Unavailable: no gateway is known.
        """
        endpoints = self.endpoints(recorded)
        if not endpoints:
            raise Unavailable(
                "no gateway is known: set RANKSCOPE_ENDPOINT to its host:port, or start one with `rankscope up`"
            )
        access = self._access_for(recorded.trust)
        with self._lock:
            if (endpoints, access) not in self._connections:
                self._connections[endpoints, access] = Connection(endpoints, access)
            return self._connections[endpoints, access]

    def keys(self, folder: Path, recorded: Recorded) -> tuple[str, ...]:
        """The keys to try for a spool: the one recorded with it, then our own, where its gateway is ours too."""
        keys: list[str] = []
        with contextlib.suppress(OSError):
            keys += (folder / "key").read_text().split()
        endpoints = recorded.endpoints
        if self._key and (self._has_key_for_all or not endpoints or endpoints == self._own):
            keys.append(self._key)
        return tuple(dict.fromkeys(keys))

    def _access_for(self, trust: Trust) -> Access:
        is_told = self._access != Access()
        if trust == Trust() or (self._has_key_for_all and is_told):
            return self._access
        files = [Path(name) if name else None for name in (trust.tls_ca, trust.tls_cert, trust.tls_key)]
        return Access(None, files[0], files[1], files[2], insecure=trust.insecure)

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
