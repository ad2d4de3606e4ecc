"""`rankscope rm`: deletes a run, for good."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from rankscope.cli._app import app
from rankscope.cli._errors import FAILED, OK, WrongCallError
from rankscope.cli._output import plural, say, say_json
from rankscope.cli._source import AsJson, Home, Project, Source, Url, named
from rankscope.up import Json, quoted

TIMEOUT_S = 3600.0
"""The store rewrites each part that holds a row of the run before it answers."""


@app.command("rm", short_help="Delete a run.")
def remove(  # noqa: PLR0913 - one for each option
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run.", show_default=False, callback=named)],
    force: Annotated[bool, typer.Option("--force", help="Delete it even if it may still be running.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> int:
    """Delete a run with all it holds, from every table; there is no way back.

    Where keys are on, the key needs the scope admin.

    Example: rankscope rm demo-1 --yes
    """
    if not yes and not _agreed(run):
        return FAILED
    with Source(home, url, project).client() as client:
        patient = replace(client, timeout_s=TIMEOUT_S, patience_s=0.0)
        answer = patient.delete(f"/runs/{quoted(run)}", project=project, force="true" if force else None)
    if as_json:
        say_json(answer)
    else:
        say(_told(answer))
    return OK


def _agreed(run: str) -> bool:
    if not sys.stdin or not sys.stdin.isatty():
        raise WrongCallError(f"nobody is there to ask whether run {run!r} may be deleted", hint="say --yes")
    return typer.confirm(f"delete run {run!r} with all it holds?", err=True)


def _told(answer: Json) -> str:
    rows = sum(answer["deleted"].values())
    return f"run {answer['run_id']} of project {answer['project']} is deleted ({plural(rows, 'row')})"
