"""`rankscope doctor` and `rankscope version`: what is installed, what runs, and how a run stands."""

import platform
from typing import Annotated

import typer

from rankscope._version import __version__
from rankscope.cli._app import app
from rankscope.cli._errors import FAILED, OK
from rankscope.cli._health import environment_lines, environment_report, is_sound
from rankscope.cli._output import say, say_json, version_line
from rankscope.cli._run_page import page_lines, page_status, run_page
from rankscope.cli._source import AsJson, Home, Project, Source, Url, chosen_folder, named
from rankscope.up import DataFolder


@app.command("doctor", short_help="What is installed, running, complete.")
def doctor(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Also tell of this run, on one page.", callback=named)
    ] = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> int:
    """What is installed and running here; with RUN, how far what is said of the run can be trusted, and what is said.

    Its page has: whether all its rows arrived, what observing costs, how well clocks are known, gaps, whether it hangs,
    what rules found. A run that is over is complete or not; of one that runs, only what has arrived is known.
    Exit 1 when something does not hold here or rows are missing, else 4 when the run hangs.

    Example: rankscope doctor demo-1
    """
    report = environment_report(DataFolder(chosen_folder(home)), url)
    page = None
    if run:
        with Source(home, url, project).client() as client:
            page = run_page(client, run, project=project)
    if as_json:
        say_json({"environment": report, **(page or {"completeness": None, "run": None})})
    else:
        for line in [*environment_lines(report), *page_lines(page)]:
            say(line)
    if not is_sound(report):
        return FAILED
    return OK if page is None else page_status(page)


@app.command("version", short_help="The version of rankscope.")
def version(as_json: AsJson = False) -> None:
    """The version of rankscope and of the Python that runs it.

    Example: rankscope version --json
    """
    if as_json:
        say_json({"rankscope": __version__, "python": platform.python_version()})
        return
    say(version_line())
