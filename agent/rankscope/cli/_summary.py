"""What plain `rankscope` prints: what this is, whether something runs, and the next command."""

import typer

from rankscope import _discovery
from rankscope._version import __version__
from rankscope.cli._app import app
from rankscope.cli._output import say
from rankscope.cli._source import chosen_folder

FIRST_STEPS = """\
  rankscope up                      start everything on this machine
  rankscope demo                    a real training of 4 ranks, and what went wrong in it
  rankscope query TQL               ask, for example 'tensor.nonfinite_count > 0 | first'
  rankscope trace                   the last step, across ranks
  rankscope runs                    which runs there are
  rankscope doctor                  what is installed, running, complete
  rankscope COMMAND --help          options, with an example"""


@app.callback(invoke_without_command=True)
def summary(context: typer.Context) -> None:
    """Flight recorder, debugger and query engine for multi-rank PyTorch training.

    Exit status: 0 it worked, 1 it failed, 2 called wrongly, 3 no such run, step or trace.
    """
    if context.invoked_subcommand:
        return
    folder = chosen_folder(None)
    found = _discovery.read(folder)
    say(f"rankscope {__version__}   data {folder}")
    say(
        f"running  query {found.query}   gateway {found.gateway}   process {found.pid}"
        if found
        else "nothing runs here"
    )
    say()
    say(FIRST_STEPS)
