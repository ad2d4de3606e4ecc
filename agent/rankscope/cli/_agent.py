"""`rankscope agent`, `drain`, `run` and `wait`: whatever carries spooled data to a gateway, and waits for it."""

import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rankscope._settings import Settings
from rankscope.cli._app import app
from rankscope.cli._errors import FAILED, OK
from rankscope.cli._output import plural, say, say_aside, say_json
from rankscope.cli._source import AsJson, Home, chosen_folder
from rankscope.up import importing

SpoolRoot = Annotated[
    Path | None,
    typer.Option(
        "--spool", envvar="RANKSCOPE_SPOOL", help="The folder of the spools.", show_default="spool in the data folder"
    ),
]
StageOut = Annotated[
    Path | None, typer.Option("--stage-out", help="Shared folder for what could not be sent; `drain` takes it there.")
]


@app.command("agent", short_help="Send what this node's ranks record.")
def agent(
    home: Home = None,
    spool: SpoolRoot = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            envvar="RANKSCOPE_ENDPOINT",
            help="Gateways for what was recorded without any: host:port, several parted by commas.",
        ),
    ] = None,
    exit_when_idle: Annotated[
        bool, typer.Option("--exit-when-idle", help="End when no rank lives and everything is sent.")
    ] = False,
    stage_out: StageOut = None,
    as_json: AsJson = False,
) -> int:
    """Send what this node's ranks record, all of them, until SIGTERM: then drain for at most 25 s.

    A rank starts one by itself where none runs. Data stays on this node's disk until the store has it.

    Example: rankscope agent --spool /var/lib/rankscope/spool --endpoint gateway:8471
    """
    with importing("rankscope agent", extra="server"):
        from rankscope.agent import serve
    settings = _settings(home, spool, endpoint)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    options = serve.AgentOptions(settings, exit_when_idle=exit_when_idle, stage_out=stage_out)
    try:
        running = serve.Agent(options)
    except serve.AgentHeldError as error:
        if not exit_when_idle:
            raise
        say_aside(str(error))
        return OK
    serve.stop_on_signals(running)
    status = running.run(on_ready=lambda: _say_ready(options, as_json=as_json))
    return OK if exit_when_idle else status
