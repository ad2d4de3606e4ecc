"""What plain `rankscope` prints: what this is, whether something runs, and the next command."""

from typing import Annotated

import typer

from rankscope import _discovery
from rankscope._discovery import Discovery
from rankscope._version import __version__
from rankscope.cli._app import app
from rankscope.cli._errors import WrongCallError
from rankscope.cli._output import say, say_json, version_line
from rankscope.cli._source import AsJson, chosen_folder

FIRST_STEPS = """\
  rankscope up                      start everything on this machine
  rankscope demo                    a real training of 4 ranks, and what went wrong in it
  rankscope query TQL               ask, for example 'tensor.nonfinite_count > 0 | first'
  rankscope trace                   the last step, across ranks
  rankscope runs                    which runs there are
  rankscope doctor                  what is installed, running, complete
  rankscope COMMAND --help          options, with an example"""


def _version_and_end(asked: bool) -> None:
    if asked:
        say(version_line())
        raise typer.Exit


@app.callback(invoke_without_command=True)
def summary(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool,
        typer.Option(
            "--version",
            callback=_version_and_end,
            is_eager=True,
            help="As `rankscope version`.",
            allow_from_autoenv=False,
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Flight recorder, debugger and query engine for multi-rank PyTorch training.

    Exit status: 0 it worked, 1 it failed, 2 called wrongly, 3 no such run, step or trace.
    """
    if context.invoked_subcommand:
        _refuse_early_json(context)
        return
    folder = chosen_folder(None)
    found = _discovery.read(folder)
    if as_json:
        say_json({"rankscope": __version__, "data_folder": str(folder), "server": _server_json(found)})
        return
    say(f"rankscope {__version__}   data {folder}")
    say(
        f"running  query {found.query}   gateway {found.gateway}   process {found.pid}"
        if found
        else "nothing runs here"
    )
    say()
    say(FIRST_STEPS)


def _refuse_early_json(context: typer.Context) -> None:
    source = context.get_parameter_source("as_json")
    if source and source.name == "COMMANDLINE":
        raise WrongCallError(f"--json goes after the command: rankscope {context.invoked_subcommand} --json")


def _server_json(found: Discovery | None) -> dict[str, str | int] | None:
    return {"query": found.query, "gateway": found.gateway, "pid": found.pid} if found else None
