"""One server: broker, writer, query service, gateway and HTTP ingest over one data folder, for others where asked.

It promises: ready means that all five answer; when one part fails, the others are stopped and the failure names
the part and its reason; on every way out nothing is left running. Parts stop in the order in which data flows
(HTTP ingest and the gateway stop accepting, the writer drains and commits, then the readers' service, then the
broker), so an orderly end leaves nothing in the broker that is not in the store.
"""

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from rankscope import _discovery
from rankscope._version import __version__
from rankscope.up._errors import PartFailedError
from rankscope.up._folder import DataFolder
from rankscope.up._ingest import ingest_part
from rankscope.up._parts import Answers, ChildPart, Part, TaskPart
from rankscope.up._ports import GATEWAY_PORT, HTTP_INGEST_PORT, LOOPBACK, QUERY_PORT, PortClaims
from rankscope.up._probes import broker_answers, broker_is_drained, http_ready, listens, until, writer_writes
from rankscope.up._public import CLOSED, Public, public_ingest, public_parts
from rankscope.up._services import load_service, require

logger = logging.getLogger(__name__)

BROKER_SOCKET = "broker.sock"

BROKER_ALLOWANCE_S = 10.0
GATEWAY_ALLOWANCE_S = 10.0
QUERY_ALLOWANCE_S = 5.0
WRITER_ALLOWANCE_S = 20.0
DRAIN_ALLOWANCE_S = 30.0
"""How long the writer may take to commit what was accepted before the gateway stopped."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports asked for; 0 takes any free one."""

    query: int = QUERY_PORT
    gateway: int = GATEWAY_PORT
    ingest: int = HTTP_INGEST_PORT


@dataclass(frozen=True, slots=True)
class Endpoints:
    """A running server.

    Attributes:
        query: the query service's URL.
        gateway: host:port for gRPC.
        ingest: URL of the HTTP ingest.
        home: the data folder.
        pid: the process to stop.
        moved: one sentence for each usual port that something else had.
        public_query: the query service's URL for other nodes; None: they are not served.
        public_gateway: the gateway's endpoint for them.
        public_ingest: the HTTP ingest's URL for them.
    """

    query: str
    gateway: str
    ingest: str
    home: str
    pid: int
    version: str
    moved: tuple[str, ...]
    public_query: str | None = None
    public_gateway: str | None = None
    public_ingest: str | None = None


class LocalServer:
    """The embedded server over one data folder.

    Args:
        folder: where data lies.
        ports: which ports to listen on, or the next free ones.
        environment: settings for the parts under their environment names.
        public: how other nodes reach it, on these ports then; None: they do not.
    """

    def __init__(
        self, folder: DataFolder, *, ports: Ports, environment: Mapping[str, str], public: Public | None = None
    ) -> None:
        self._public = public
        self._folder = folder
        self._wanted = ports
        self._environment = environment

    async def run(self, stop: asyncio.Event, *, on_ready: Callable[[Endpoints], None]) -> None:
        """Serve until `stop` is set, then put everything away.

        Args:
            stop: set it to end in order.
            on_ready: called once, when every part answers.

        Raises:
            FolderHeldError: another process holds the data folder.
            MissingExtraError: the packages of a part are not installed.
            PartFailedError: a part did not start, or ended by itself.
        """
        require("rankscope up", "chdb", extra="embedded,server")
        self._folder.prepare()
        with ExitStack() as resources:
            resources.enter_context(self._folder.held())
            sockets = resources.enter_context(self._folder.socket_folder())
            resources.enter_context(working_in(self._folder.store))
            claims = resources.enter_context(PortClaims())
            beyond = self._claimed_beyond(claims)
            wanted = Ports(0, 0, 0) if self._public and self._public.covers_loopback else self._wanted
            ports = claimed(claims, wanted)
            parts = self._parts(sockets, ports, beyond)
            endpoints = self._endpoints(ports, beyond)
            try:
                await _start(parts, stop)
                if not stop.is_set():
                    self._announce(endpoints, broker=_url(sockets / BROKER_SOCKET))
                    on_ready(endpoints)
                await _watch(parts, stop)
            finally:
                _discovery.remove(self._folder.path)
                await parts.stop()

    def _claimed_beyond(self, claims: PortClaims) -> Ports | None:
        """The ports for other nodes; None: they are not served."""
        if self._public is None:
            return None
        return claimed(claims, self._wanted, host=self._public.host)

    def _parts(self, sockets: Path, ports: Ports, beyond: Ports | None, /) -> "Parts":
        socket = sockets / BROKER_SOCKET
        settings = self._settings(socket, ports)
        return Parts(
            broker=TaskPart(
                "broker",
                load_service("broker"),
                settings=settings,
                answers=lambda: broker_answers(socket),
                allowance_s=BROKER_ALLOWANCE_S,
            ),
            writer=TaskPart(
                "writer",
                load_service("writer"),
                settings=settings,
                answers=lambda: writer_writes(socket),
                allowance_s=WRITER_ALLOWANCE_S,
            ),
            query=TaskPart(
                "query-service",
                load_service("query-service"),
                settings=settings,
                answers=lambda: http_ready(ports.query),
                allowance_s=QUERY_ALLOWANCE_S,
            ),
            gateway=ChildPart(
                "gateway",
                environment={**os.environ, **settings},
                folder=self._folder,
                answers=lambda: listens(ports.gateway),
                allowance_s=GATEWAY_ALLOWANCE_S,
            ),
            ingest=ingest_part(
                "http-ingest",
                self._folder,
                settings=settings,
                listen=f"127.0.0.1:{ports.ingest}",
                gateway_port=ports.gateway,
                answers=lambda: http_ready(ports.ingest),
            ),
            is_drained=lambda: broker_is_drained(socket),
            public=self._public_parts(settings, beyond, loopback_gateway=ports.gateway),
        )

    def _public_parts(
        self, settings: Mapping[str, str], beyond: Ports | None, *, loopback_gateway: int
    ) -> Sequence[Part]:
        if self._public is None or beyond is None:
            return ()
        return (
            *public_parts(
                self._public, self._folder, settings=settings, query_port=beyond.query, gateway_port=beyond.gateway
            ),
            public_ingest(
                self._public, self._folder, settings=settings, port=beyond.ingest, loopback_gateway=loopback_gateway
            ),
        )

    def _settings(self, socket: Path, ports: Ports) -> dict[str, str]:
        given = {name: value for name, value in self._environment.items() if name.startswith("RANKSCOPE_")}
        return given | {
            **CLOSED,
            "RANKSCOPE_HOME": str(self._folder.path),
            "RANKSCOPE_REDIS_URL": _url(socket),
            "RANKSCOPE_CLICKHOUSE_URL": f"chdb://{self._folder.store}",
            "RANKSCOPE_BROKER_FOLDER": str(self._folder.broker),
            "RANKSCOPE_GATEWAY_LISTEN": f"127.0.0.1:{ports.gateway}",
            "RANKSCOPE_QUERY_LISTEN": f"127.0.0.1:{ports.query}",
            "RANKSCOPE_MIGRATE": "1",
        }

    def _endpoints(self, ports: Ports, beyond: Ports | None) -> Endpoints:
        public = self._public
        return Endpoints(
            query=f"http://127.0.0.1:{ports.query}",
            gateway=f"127.0.0.1:{ports.gateway}",
            ingest=f"http://127.0.0.1:{ports.ingest}",
            home=str(self._folder.path),
            pid=os.getpid(),
            version=__version__,
            moved=moved(self._wanted, beyond or ports),
            public_query=public.url(beyond.query) if public and beyond else None,
            public_gateway=public.endpoint(beyond.gateway) if public and beyond else None,
            public_ingest=public.url(beyond.ingest) if public and beyond else None,
        )

    def _announce(self, endpoints: Endpoints, *, broker: str) -> None:
        found = _discovery.Discovery(
            gateway=endpoints.gateway,
            query=endpoints.query,
            pid=endpoints.pid,
            token=secrets.token_hex(16),
            version=endpoints.version,
            broker=broker,
            ingest=endpoints.ingest,
        )
        _discovery.write(self._folder.path, found)


@dataclass(frozen=True, slots=True)
class Parts:
    """The five parts, those for other nodes, and the two orders in which they come and go.

    Attributes:
        public: gateway, query service and HTTP ingest for other nodes; none: they are not served.
        is_drained: whether nothing that was accepted waits for the writer.
    """

    broker: Part
    writer: Part
    query: Part
    gateway: Part
    ingest: Part
    is_drained: Answers
    public: Sequence[Part] = ()

    @property
    def waves(self) -> tuple[Sequence[Part], ...]:
        """Each wave needs the one before it to be ready; other nodes are let in last."""
        return (self.broker,), (self.gateway, self.writer, self.ingest), (self.query,), self.public

    async def stop(self) -> None:
        """Stop all, from the one that accepts data to the one that holds it."""
        logger.info("stopping")
        # What was taken over HTTP goes to the gateway before that stops.
        for part in (*reversed(self.public), self.ingest, self.gateway):
            await part.stop()
        await self._drain()
        for part in (self.writer, self.query, self.broker):
            await part.stop()

    async def _drain(self) -> None:
        """Wait until the writer has committed what was accepted; what a hurried end leaves comes first next time."""
        try:
            async with asyncio.timeout(DRAIN_ALLOWANCE_S):
                await _first_of(until(self.is_drained), self.writer.ended(), self.broker.ended())
        except TimeoutError:
            logger.warning("the store does not take what was accepted; it stays in the broker for the next start")


def _url(socket: Path) -> str:
    return f"unix://{socket}"


@contextmanager
def working_in(folder: Path) -> Generator[None]:
    """Work inside `folder` for a while: chDB writes a cache folder where its process runs."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


async def _start(parts: Parts, stop: asyncio.Event) -> None:
    """Start wave by wave; returns early when `stop` is set."""
    started: list[Part] = []
    for wave in parts.waves:
        for part in wave:
            await part.start()
        started += wave
        ready = asyncio.gather(*(part.ready() for part in wave))
        await _first_of(ready, _failure_of(started), stop.wait())
        if stop.is_set():
            return


async def _watch(parts: Parts, stop: asyncio.Event) -> None:
    """Return when `stop` is set; raise when a part ends before."""
    await _first_of(_failure_of([part for wave in parts.waves for part in wave]), stop.wait())


async def _failure_of(parts: Sequence[Part]) -> None:
    """Raise PartFailedError at the first part's end."""

    async def end_of(part: Part) -> None:
        raise PartFailedError(part.name, await part.ended())

    await asyncio.gather(*(end_of(part) for part in parts))


async def _first_of(*awaitables: Awaitable[object]) -> None:
    """Wait for the first of them and raise its error; the others are cancelled."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def free_ports(wanted: Ports, host: str = LOOPBACK) -> Ports:
    """The ports a server that starts now would take on an address; one that may be any stays 0.

    Raises:
        UpError: none of the next 200 ports is free.
    """
    with PortClaims() as claims:
        return Ports(*(claims.take(port, host) if port else 0 for port in astuple(wanted)))


def claimed(claims: PortClaims, wanted: Ports, *, host: str = LOOPBACK) -> Ports:
    """The ports of a server on an address, from now to the end of the claims.

    Raises:
        UpError: none of the next 200 ports is free.
    """
    return Ports(*(claims.take(port, host) for port in astuple(wanted)))


def moved(wanted: Ports, got: Ports) -> tuple[str, ...]:
    """One sentence for each port that something else had."""
    return tuple(_moves(wanted, got))


def _moves(wanted: Ports, got: Ports) -> Iterator[str]:
    pairs = (
        ("query service", wanted.query, got.query),
        ("gateway", wanted.gateway, got.gateway),
        ("HTTP ingest", wanted.ingest, got.ingest),
    )
    for part, asked, taken in pairs:
        if asked not in (0, taken):
            yield f"port {asked} is busy: the {part} listens on {taken}"
