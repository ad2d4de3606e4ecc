"""`rankscope agent`, `drain`, `run` and `wait`: whatever carries spooled data to a gateway, and waits for it."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope._agent_start import agent_environment, start_agent
from rankscope._attach import connect
from rankscope._settings import SETTINGS, Settings
from rankscope._spooling import find_root
from rankscope.agent.left import Left, left_in
from rankscope.agent.running import await_delivery, run_command
from rankscope.agent.sampler.every import EVERY_S, seconds_between
from rankscope.cli._app import app
from rankscope.cli._errors import FAILED, OK
from rankscope.cli._http import Http, HttpKeys, HttpOptions, HttpTlsCert, HttpTlsClientCa, HttpTlsKey
from rankscope.cli._output import plural, say, say_aside, say_json
from rankscope.cli._source import AsJson, Home, chosen_folder, named
from rankscope.errors import Unavailable
from rankscope.spool import stage_out as stage

if TYPE_CHECKING:
    from rankscope.agent.serve import AgentOptions

LOOK_S = 0.2

SpoolRoot = Annotated[
    Path | None,
    typer.Option(
        "--spool", envvar="RANKSCOPE_SPOOL", help="The folder of the spools.", show_default="spool in the data folder"
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        envvar="RANKSCOPE_ENDPOINT",
        help="Gateways for what was recorded without any: host:port, several parted by commas.",
        show_default="found in the data folder",
    ),
]
StageOut = Annotated[
    Path | None, typer.Option("--stage-out", help="Shared folder for what could not be sent; `drain` takes it there.")
]

Sample = Annotated[
    str | None,
    typer.Option(
        "--sample",
        envvar="RANKSCOPE_SAMPLE",
        help="How often CPU, memory, network, disks and GPUs of this node are sampled: 5s, or off.",
        show_default="5s; with --exit-when-idle off",
    ),
]


@app.command("agent", short_help="Send what this node's ranks record.")
def agent(  # noqa: PLR0913 - one for each option
    home: Home = None,
    spool: SpoolRoot = None,
    endpoint: Endpoint = None,
    exit_when_idle: Annotated[
        bool, typer.Option("--exit-when-idle", help="End when no rank lives and everything is sent.")
    ] = False,
    stage_out: StageOut = None,
    sample: Sample = None,
    http: Http = None,
    http_keys: HttpKeys = None,
    http_tls_cert: HttpTlsCert = None,
    http_tls_key: HttpTlsKey = None,
    http_tls_client_ca: HttpTlsClientCa = None,
    as_json: AsJson = False,
) -> int:
    """Send what this node's ranks record, all of them, until SIGTERM: then drain for at most 25 s.

    A rank starts one by itself where none runs. Data stays on this node's disk until the store has it.
    With --http it also takes trace events over HTTP, of programs that record without this SDK.

    Example: rankscope agent --spool /var/lib/rankscope/spool --endpoint gateway:8471
    """
    from rankscope.agent import serve  # not at the top: no other command need load gRPC

    if http is not None and exit_when_idle:
        # Said aside, not refused: a rank starts its agent so, in an environment that may name an address.
        say_aside("no HTTP ingest: this agent ends when nothing is left to send, and who sends over HTTP comes later")
        http = None
    settings = _settings(home, spool, endpoint=endpoint)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    sample_s = _sample_s(sample, exit_when_idle=exit_when_idle)
    options = serve.AgentOptions(settings, exit_when_idle=exit_when_idle, stage_out=stage_out, sample_s=sample_s)
    front = HttpOptions(http, http_keys, http_tls_cert, http_tls_key, http_tls_client_ca).front(settings)
    try:
        running = serve.Agent(options)
    except serve.AgentHeldError as error:
        if not exit_when_idle:
            raise
        say_aside(str(error))
        return OK
    serve.stop_on_signals(running)
    url = front.url if front is not None else None
    running.run(front=front, on_ready=lambda: _say_ready(options, url, as_json=as_json))
    return OK


@app.command("drain", short_help="Send what lies in a folder of spools.")
def drain(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A folder of spools, or one they were staged out to.",
            show_default="spool in the data folder",
        ),
    ] = None,
    home: Home = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            envvar="RANKSCOPE_ENDPOINT",
            help="Gateways to send all of it to: host:port, several parted by commas.",
            show_default="those that it was recorded for",
        ),
    ] = None,
    patience: Annotated[float, typer.Option(min=0.1, help="Seconds without any progress after which to give up.")] = 15,
    as_json: AsJson = False,
) -> int:
    """Send what lies in a folder of spools, and remove what the store has. Exit 1 when something is left.

    Safe to repeat, from any machine that sees the folder; RANKSCOPE_KEY is the key for what was recorded without one.

    Example: rankscope drain /shared/staged --endpoint gateway:8471
    """
    from rankscope.agent.drain import drain as drained_from  # not at the top: no other command need load gRPC

    load = _settings if folder is None else _loaded
    settings = load(home, None, endpoint=endpoint)
    done = drained_from(
        folder or settings.spool_root, settings, instead=settings.endpoint if endpoint else (), patience_s=patience
    )
    if as_json:
        say_json({"removed": done.removed, "left": [asdict(one) for one in done.left], "faults": list(done.faults)})
    else:
        say(_drained(done.removed, folder or settings.spool_root, is_all=not done.left))
        _say_left(done.left)
        for fault in done.faults:
            say_aside(fault)
    return FAILED if done.left else OK


@app.command(
    "run",
    short_help="Run a training command with an agent beside it.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The training command, best behind `--`.")],
    home: Home = None,
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", envvar="RANKSCOPE_RUN_ID", help="The run.", show_default="agreed by the ranks"),
    ] = None,
    endpoint: Endpoint = None,
    stage_out: StageOut = None,
) -> int:
    """Run a training command, such as torchrun, with this node's agent beside it; its exit status is the result.

    Signals are passed on. After it, waits at most 25 s until the store has what it recorded.

    Example: rankscope run --run-id llama-7b -- torchrun --nproc-per-node 8 train.py
    """
    settings = _settings(home, None, endpoint=endpoint, run_id=run_id)
    root = settings.spool_root
    _start(settings)
    began_ns = time.time_ns()
    given = {SETTINGS["spool"].variable: str(root.absolute())}
    if run_id is not None:
        given[SETTINGS["run_id"].variable] = run_id
    if endpoint is not None:
        given[SETTINGS["endpoint"].variable] = endpoint
    if home is not None:
        given[SETTINGS["home"].variable] = str(chosen_folder(home))
    status = run_command(command, {**os.environ, **given})
    left = await_delivery(root, since_ns=began_ns, has_agent=lambda: _has_agent(root))
    if left and stage_out is not None:
        places = stage(root, stage_out)
        say_aside(f"{plural(len(places), 'spool')} staged out to {stage_out}: rankscope drain {stage_out} sends them")
    elif left:
        say_aside(f"{_summary(left)} not in the store yet: the agent goes on, or `rankscope drain` sends it")
    return status


@app.command("wait", short_help="Wait until the store has what was recorded here.")
def wait(
    run_id: Annotated[str, typer.Argument(metavar="RUN", envvar="RANKSCOPE_RUN_ID", help="The run.")],
    home: Home = None,
    spool: SpoolRoot = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds after which to give up.")] = 60,
    as_json: AsJson = False,
) -> int:
    """Wait until the store has all that this node recorded of a run. Exit 1 when it has not in time.

    Example: rankscope wait demo-1 --timeout 300
    """
    named(run_id)
    root = _settings(home, spool).spool_root
    deadline = time.monotonic() + timeout
    while (left := left_in(root, run_id=run_id)) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    if as_json:
        say_json({"run": run_id, "left": [asdict(one) for one in left]})
    elif not left:
        say(f"nothing of {run_id} waits on this node: what was recorded here of it is in the store")
    else:
        _say_left(left)
        if not _has_agent(root):
            say_aside("no agent runs here: `rankscope drain` sends what is left")
    return FAILED if left else OK


def _sample_s(given: str | None, *, exit_when_idle: bool) -> float | None:
    """Seconds between two samples; where nothing is said, an agent that a rank started for itself takes none."""
    if given is None:
        return None if exit_when_idle else EVERY_S
    return seconds_between(given)


def _settings(
    home: Path | None, spool: Path | None, *, endpoint: str | None = None, run_id: str | None = None
) -> Settings:
    """The settings, with the folder in which the ranks of this node put their spools too."""
    settings, warning = find_root(_loaded(home, spool, endpoint=endpoint, run_id=run_id))
    if warning:
        say_aside(warning)
    return settings


def _loaded(home: Path | None, spool: Path | None, *, endpoint: str | None, run_id: str | None = None) -> Settings:
    given = {"home": chosen_folder(home), "spool": spool, "endpoint": endpoint or None, "run_id": run_id}
    return Settings.load(os.environ, **given)


def _start(settings: Settings) -> None:
    """An agent for this node, where none lives; without one the ranks start it, or their spools keep the data."""
    root = settings.spool_root
    if settings.sender != "process" or _has_agent(root):
        return
    try:
        start_agent(root, agent_environment(os.environ, settings))
    except (OSError, Unavailable) as error:
        say_aside(f"{error}; the data is kept in {root}")


def _has_agent(root: Path) -> bool:
    found = connect(root)
    if found is not None:
        found.close()
    return found is not None


def _say_ready(options: "AgentOptions", url: str | None, *, as_json: bool) -> None:
    if as_json:
        say_json({"pid": os.getpid(), "root": str(options.root), "http": url})
        return
    say(f"agent {os.getpid()} sends what lies in {options.root}")
    if url is not None:
        say(f"HTTP ingest {url}/api/runs/RUN/traces/events")


def _drained(removed: int, folder: Path, *, is_all: bool) -> str:
    if not removed and is_all:
        return f"no spool lies in {folder}"
    return f"{plural(removed, 'spool')} sent and removed" + (", nothing is left" if is_all else "")


def _say_left(left: Sequence[Left]) -> None:
    for one in left:
        if not one.run_id:
            say(f"left: {one.node}, which cannot be read, {one.size} bytes")
            continue
        say(f"left: run {one.run_id}, rank {one.rank} of {one.node}: {one.batches} batches, {one.size} bytes")


def _summary(left: Sequence[Left]) -> str:
    return f"{plural(len(left), 'spool')} with {sum(one.size for one in left)} bytes"
