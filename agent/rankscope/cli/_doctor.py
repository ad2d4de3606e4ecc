"""`rankscope doctor` and `rankscope version`: what is installed, what runs, and whether a run is complete."""

import platform
from typing import Annotated

import typer

from rankscope._version import __version__
from rankscope.cli._app import app
from rankscope.cli._errors import FAILED, OK
from rankscope.cli._health import environment_lines, environment_report, is_sound
from rankscope.cli._output import say, say_json, version_line
from rankscope.cli._run_health import is_whole, run_lines, run_report
from rankscope.cli._source import AsJson, Home, Project, Source, Url, chosen_folder, named
from rankscope.up import DataFolder


@app.command("doctor", short_help="What is installed, running, complete.")
def doctor(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Also check that this run's data is complete.", callback=named)
    ] = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> int:
    """What is installed and running here; with RUN, whether all its rows arrived. Exit 1 when something does not hold.

    A run that is over is complete or not; of one that runs, only what has arrived is known.

    Example: rankscope doctor demo-1
    """
    report = environment_report(DataFolder(chosen_folder(home)), url)
    of_run = None
    if run:
        with Source(home, url, project).client() as client:
            of_run = run_report(client, run, project=project)
    if as_json:
        say_json({"environment": report, **(of_run or {"completeness": None, "run": None})})
    else:
        for line in [*environment_lines(report), *run_lines(of_run)]:
            say(line)
    return OK if is_sound(report) and (of_run is None or is_whole(of_run)) else FAILED


@app.command("version", short_help="The version of rankscope.")
def version(as_json: AsJson = False) -> None:
    """The version of rankscope and of the Python that runs it.

    Example: rankscope version --json
    """
    if as_json:
        say_json({"rankscope": __version__, "python": platform.python_version()})
        return
    say(version_line())
