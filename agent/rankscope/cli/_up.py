"""`rankscope up` and `rankscope demo`: the two commands that start something."""

import asyncio
import logging
import os
import shlex
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rankscope import _discovery
from rankscope._discovery import Discovery
from rankscope.cli._app import app
from rankscope.cli._errors import WrongCallError
from rankscope.cli._listening import (
    Insecure,
    Keys,
    Listen,
    ListenOptions,
    Retention,
    TlsCert,
    TlsClientCa,
    TlsKey,
    arguments_of,
)
from rankscope.cli._output import say, say_aside, say_json
from rankscope.cli._source import AsJson, Home, chosen_folder
from rankscope.demo import DemoOptions, run_demo
from rankscope.up import (
    GATEWAY_PORT,
    HTTP_INGEST_PORT,
    LOOPBACK,
    QUERY_PORT,
    DataFolder,
    Endpoints,
    LocalServer,
    Ports,
    Public,
    call,
    free_ports,
    is_usual,
    moved,
    start_detached,
)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@app.command("up", short_help="Start everything on this machine.")
def up(  # noqa: PLR0913 - one for each option
    home: Home = None,
    query_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the query service; 0 takes any free one.")
    ] = QUERY_PORT,
    gateway_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the gateway (gRPC); 0 takes any free one.")
    ] = GATEWAY_PORT,
    http_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the HTTP ingest; 0 takes any free one.")
    ] = HTTP_INGEST_PORT,
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background; output goes to up.log.")] = False,
    wait_ready: Annotated[
        bool, typer.Option("--wait-ready", help="With --detach: return when everything answers.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="What goes to stderr: debug, info, warning or error.")] = "warning",
    listen: Listen = None,
    keys: Keys = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Insecure = False,
    retention: Retention = None,
    as_json: AsJson = False,
) -> None:
    """Start everything on this machine: broker, gateway, writer, query service, HTTP ingest, on loopback.

    With --listen ADDRESS it also serves other nodes there, who need a key; the first one is printed once.

    A busy port is replaced by the next free one, and said. Ctrl-C or SIGTERM ends it in order and leaves nothing.

    Example: rankscope up --detach --wait-ready --json
    """
    folder = DataFolder(chosen_folder(home))
    options = ListenOptions(listen, keys, tls_cert, tls_key, tls_client_ca, insecure)
    ports = Ports(query=query_port, gateway=gateway_port, ingest=http_port)
    start = Start(folder, ports, options.public(folder), retention, as_json)
    if wait_ready and not detach:
        raise WrongCallError("--wait-ready goes with --detach: in the foreground `up` says when it is ready")
    if not as_json:
        _warn_of(folder)
    if detach:
        start.detached(wait_ready=wait_ready, log_level=log_level)
        return
    _log_to_stderr(log_level)
    asyncio.run(start.until_signalled())


@app.command("demo", short_help="Train 4 ranks for real, and find what went wrong.")
def demo(
    home: Home = None,
    seed: Annotated[int, typer.Option(min=0, help="Chooses the faults' rank, step and layer.")] = 1,
    no_faults: Annotated[bool, typer.Option("--no-faults", help="Train without faults.")] = False,
    steps: Annotated[int, typer.Option(min=40, max=1000, help="Steps to train.")] = 60,
    exit_at_end: Annotated[bool, typer.Option("--exit", help="End after the finding, on a terminal too.")] = False,
    json_path: Annotated[
        Path | None,
        typer.Option(
            "--json",
            envvar="RANKSCOPE_DEMO_JSON",
            metavar="PATH",
            help="Write run, injected and found here; - is stdout.",
        ),
    ] = None,
) -> None:
    """Train a small transformer on 4 ranks for real, and find from queries alone what went wrong in it.

    Starts everything as `up` does, unless it runs already; the data stays in the data folder.

    Example: rankscope demo --exit --seed 7 --json build/demo.json
    """
    options = DemoOptions(seed=seed, steps=steps, faults=not no_faults, stays=not exit_at_end, json_path=json_path)
    folder = DataFolder(chosen_folder(home))
    _warn_of(folder)
    run_demo(folder, options, say=say_aside if str(json_path) == "-" else say)


def _warn_of(folder: DataFolder) -> None:
    exposure = folder.exposure()
    if exposure:
        say_aside(f"warning: {exposure}")


@dataclass(frozen=True, slots=True)
class Start:
    """A server that is to be started, in the foreground or not.

    Attributes:
        folder: its data folder.
        ports: the ports it should have.
        public: how other nodes reach it; None: they do not.
        retention: days that rows are kept; None: as the environment says.
        as_json: whether what is told is one JSON document.
    """

    folder: DataFolder
    ports: Ports
    public: Public | None
    retention: int | None
    as_json: bool

    def detached(self, *, wait_ready: bool, log_level: str) -> None:
        """Start it in the background, and tell where it is."""
        key = self._first_key()
        # Chosen here and not there, so that a busy one is said here and not in the log.
        free = free_ports(self.ports, self.public.host if self.public else LOOPBACK)
        ports = ["--query-port", str(free.query), "--gateway-port", str(free.gateway), "--http-port", str(free.ingest)]
        arguments = [*ports, "--log-level", log_level, *arguments_of(self.public)]
        pid = start_detached(self.folder, arguments, environment=self._environment(), wait_ready=wait_ready)
        found = _discovery.read(self.folder.path) if wait_ready else None
        got = _ports_of(found) if found and not self.public else free
        started = {
            "query": found.query if found else None,
            "gateway": found.gateway if found else None,
            "ingest": found.ingest if found else None,
            "home": str(self.folder.path),
            "pid": pid,
            "log": str(self.folder.log("up")),
            "moved": moved(self.ports, got),
            **self._told_of_public(free, key),
        }
        if self.as_json:
            say_json(started)
            return
        _say_started(started)

    async def until_signalled(self) -> None:
        """Run it here until a signal comes."""
        key = self._first_key()
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, stop.set)
        environment = self._environment()
        server = LocalServer(self.folder, ports=self.ports, environment=environment, public=self.public)
        await server.run(stop, on_ready=lambda endpoints: self._say_ready(endpoints, key))

    def _first_key(self) -> str | None:
        if self.public is None:
            return None
        self.folder.prepare()
        return self.public.first_key()

    def _environment(self) -> dict[str, str]:
        own = {"RANKSCOPE_HOME": str(self.folder.path)}
        kept = {} if self.retention is None else {"RANKSCOPE_RETENTION_DAYS": str(self.retention)}
        return {**os.environ, **own, **kept}

    def _told_of_public(self, ports: Ports, key: str | None) -> dict[str, str | None]:
        if self.public is None:
            return {}
        return {
            "public_query": self.public.url(ports.query) if ports.query else None,
            "public_gateway": self.public.endpoint(ports.gateway) if ports.gateway else None,
            "public_ingest": self.public.url(ports.ingest) if ports.ingest else None,
            "key": key,
        }

    def _say_ready(self, endpoints: Endpoints, key: str | None) -> None:
        told = asdict(endpoints)
        if self.as_json:
            say_json({**told, "key": key} if self.public else told)
            return
        for sentence in endpoints.moved:
            say(sentence)
        say(f"rankscope {endpoints.version}   data {endpoints.home}")
        say(f"query    {endpoints.query}/api/v1/runs\ngateway  {endpoints.gateway}\nhttp     {endpoints.ingest}")
        _say_public({**told, "key": key})
        for line in _next_lines(self.folder):
            say(line)
        say("Ctrl-C ends it")


def _say_started(started: Mapping[str, Any]) -> None:
    for sentence in started["moved"]:
        say(sentence)
    if started["query"]:
        say(f"query    {started['query']}\ngateway  {started['gateway']}\nhttp     {started['ingest']}")
    _say_public(started)
    state = "ready" if started["query"] else "starting"
    say(f"process  {started['pid']} ({state}; end it with: kill {started['pid']})\nlog      {started['log']}")


def _say_public(told: Mapping[str, Any]) -> None:
    """Where other nodes find it, and their first key, which is shown this once."""
    if told.get("public_gateway"):
        say(f"elsewhere RANKSCOPE_ENDPOINT={told['public_gateway']} RANKSCOPE_URL={told['public_query']}")
        say(f"          HTTP ingest {told['public_ingest']}")
    if told.get("key"):
        say(f"          RANKSCOPE_KEY={told['key']}   (shown this once; `rankscope keys create` makes more)")


def _ports_of(found: Discovery) -> Ports:
    return Ports(*(int(address.rpartition(":")[2]) for address in (found.query, found.gateway, found.ingest)))


def _next_lines(folder: DataFolder) -> list[str]:
    where = "" if is_usual(folder) else f" with RANKSCOPE_HOME={shlex.quote(str(folder.path))}"
    return [
        f"next     {call(folder, 'demo')}   a real training, and what went wrong in it",
        f"         import rankscope; rankscope.init()   in your own training{where}",
    ]


def _log_to_stderr(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise WrongCallError(f"--log-level {level!r} is none of debug, info, warning, error")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s %(message)s")
