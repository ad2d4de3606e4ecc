"""`rankscope up` and `rankscope demo`: the two commands that start something."""

import asyncio
import logging
import os
import shlex
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rankscope import _discovery
from rankscope._discovery import Discovery
from rankscope.cli._app import app
from rankscope.cli._errors import WrongCallError
from rankscope.cli._output import say, say_aside, say_json
from rankscope.cli._source import AsJson, Home, chosen_folder
from rankscope.demo import DemoOptions, run_demo
from rankscope.up import DataFolder, Endpoints, LocalServer, Ports, call, free_ports, is_usual, moved, start_detached

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@app.command("up", short_help="Start everything on this machine.")
def up(  # noqa: PLR0913 - one for each option
    home: Home = None,
    query_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the query service; 0 takes any free one.")
    ] = 8470,
    gateway_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the gateway (gRPC); 0 takes any free one.")
    ] = 8471,
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background; output goes to up.log.")] = False,
    wait_ready: Annotated[
        bool, typer.Option("--wait-ready", help="With --detach: return when everything answers.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="What goes to stderr: debug, info, warning or error.")] = "warning",
    as_json: AsJson = False,
) -> None:
    """Start everything on this machine: broker, gateway, writer, query service, on loopback.

    A busy port is replaced by the next free one, and said. Ctrl-C or SIGTERM ends it in order and leaves nothing.

    Example: rankscope up --detach --wait-ready --json
    """
    folder = DataFolder(chosen_folder(home))
    ports = Ports(query=query_port, gateway=gateway_port)
    if not as_json:
        _warn_of(folder)
    if detach:
        _up_detached(folder, ports, wait_ready=wait_ready, log_level=log_level, as_json=as_json)
        return
    if wait_ready:
        raise WrongCallError("--wait-ready goes with --detach: in the foreground `up` says when it is ready")
    _log_to_stderr(log_level)
    asyncio.run(_up_until_signalled(folder, ports, as_json=as_json))


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


def _up_detached(folder: DataFolder, ports: Ports, *, wait_ready: bool, log_level: str, as_json: bool) -> None:
    free = free_ports(ports)  # chosen here and not there, so that a busy one is said here and not in the log
    arguments = ["--query-port", str(free.query), "--gateway-port", str(free.gateway), "--log-level", log_level]
    environment = {**os.environ, "RANKSCOPE_HOME": str(folder.path)}
    pid = start_detached(folder, arguments, environment=environment, wait_ready=wait_ready)
    found = _discovery.read(folder.path) if wait_ready else None
    sentences = moved(ports, _ports_of(found) if found else free)
    started = {
        "query": found.query if found else None,
        "gateway": found.gateway if found else None,
        "home": str(folder.path),
        "pid": pid,
        "log": str(folder.log("up")),
        "moved": sentences,
    }
    if as_json:
        say_json(started)
        return
    for sentence in sentences:
        say(sentence)
    if found:
        say(f"query    {found.query}\ngateway  {found.gateway}")
    say(f"process  {pid} ({'ready' if found else 'starting'}; end it with: kill {pid})\nlog      {folder.log('up')}")


def _ports_of(found: Discovery) -> Ports:
    return Ports(query=int(found.query.rpartition(":")[2]), gateway=int(found.gateway.rpartition(":")[2]))


async def _up_until_signalled(folder: DataFolder, ports: Ports, *, as_json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    server = LocalServer(folder, ports=ports, environment=os.environ)
    await server.run(stop, on_ready=lambda endpoints: _say_ready(endpoints, folder, as_json=as_json))


def _say_ready(endpoints: Endpoints, folder: DataFolder, *, as_json: bool) -> None:
    if as_json:
        say_json(asdict(endpoints))
        return
    for sentence in endpoints.moved:
        say(sentence)
    say(f"rankscope {endpoints.version}   data {endpoints.home}")
    say(f"query    {endpoints.query}/api/v1/runs\ngateway  {endpoints.gateway}")
    for line in _next_lines(folder):
        say(line)
    say("Ctrl-C ends it")


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
