"""The demo from start to end: a server, a training, a finding, and the commands with which to go on."""

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

from rankscope import _discovery
from rankscope._discovery import Discovery
from rankscope._version import __version__
from rankscope.demo._findings import FIRST_NONFINITE, Findings, findings_of, first_nonfinite, wait_until_visible
from rankscope.demo._options import RANKS, DemoOptions, Say
from rankscope.demo._training import Training, new_run_id
from rankscope.up import Client, DataFolder, call, require, running_server

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SLOW_INPUT = 'span.phase == "input" and span.duration > 50ms | count() by rank'


def run_demo(folder: DataFolder, options: DemoOptions, *, say: Say) -> None:
    """Run one demo; what it started is gone when this returns, and the data stays in the folder.

    Raises:
        FolderHeldError: another process holds the data folder without serving it.
        IncompleteError: rows did not arrive.
        MissingExtraError: torch or the embedded store is not installed.
        PartFailedError: the server did not start.
        TrainingFailedError: the training did not finish.
    """
    require("rankscope demo", "torch", "chdb", extra="all")
    with terminated_by_signal(), _server(folder, say) as server:
        client = Client(server.query)
        run = new_run_id(options)
        injected = _train(run, options, folder=folder, server=server, say=say)
        findings = _find(client, run, say=say)
        _write_json(options.json_path, {"run": run, "injected": injected, "found": findings.found})
        _say_next(server, run, folder=folder, say=say)
        if options.stays and sys.stdout.isatty():
            _wait_for_interrupt(say)


@contextlib.contextmanager
def terminated_by_signal() -> Generator[None]:
    """SIGINT, SIGTERM and SIGHUP end the block, so that what it started is put away.

    SIGINT too: a script's background command inherits that it is ignored, and then Python leaves it so.
    """
    before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _server(folder: DataFolder, say: Say) -> Generator[Discovery]:
    """The server that runs over the folder already, or one for as long as the demo takes."""
    running = _discovery.read(folder.path)
    if running:
        say(f"using the server that runs here: process {running.pid}, {running.query}")
        yield running
        return
    environment = {**os.environ, "RANKSCOPE_HOME": str(folder.path)}
    say(f"rankscope {__version__}   data {folder.path}")
    with running_server(folder, [], environment=environment) as server:
        say(f"query    {server.query}\ngateway  {server.gateway}")
        yield server


def _train(run: str, options: DemoOptions, *, folder: DataFolder, server: Discovery, say: Say) -> Any:
    say(f"training {RANKS} ranks for {options.steps} steps, run {run}")
    injected = folder.path / "injected.json"
    Training(run, options, folder, server, injected).finish(say)
    return json.loads(injected.read_text("utf-8"))


def _find(client: Client, run: str, *, say: Say) -> Findings:
    stored = wait_until_visible(client, run)
    say(f"all {_stored_rows(stored):,} rows of the run are in the store; asking them")
    findings = findings_of(client, run)
    findings.tell(say)
    row = first_nonfinite(client, run)
    if row:
        say(f"  TQL `{FIRST_NONFINITE}`: {row['nonfinite_count']} of {row['numel_local']} values of {row['name']}")
    return findings


def _stored_rows(completeness: dict[str, Any]) -> int:
    return sum(int(section["stored"]) for section in completeness["sections"])


def _say_next(server: Discovery, run: str, *, folder: DataFolder, say: Say) -> None:
    say(f"API      {server.query}/api/v1/runs/{run}")
    say(f"ask      {call(folder, 'trace', run)}")
    for question in (FIRST_NONFINITE, SLOW_INPUT):
        say(f"         {call(folder, 'query', question, '--run', run)}")


def _write_json(path: Path | None, document: dict[str, Any]) -> None:
    if path is None:
        return
    text = json.dumps(document, indent=2) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _wait_for_interrupt(say: Say) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        say("Ctrl-C to stop")
        threading.Event().wait()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
