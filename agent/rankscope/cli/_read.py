"""`rankscope query` and `rankscope runs`: rows from the query service, for people and for programs."""

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from rankscope.cli._app import app
from rankscope.cli._columns import laid_out
from rankscope.cli._errors import FAILED_IF, OK, OVER_GAP, WrongCallError
from rankscope.cli._forms import Arrow, Csv, form_of, write
from rankscope.cli._output import plural, say, say_aside, say_json, say_rest, say_warnings, table
from rankscope.cli._source import AsJson, Home, Project, Source, Url, named
from rankscope.client import Asking
from rankscope.up import Json

RUN_COLUMNS = ("run_id", "status", "ranks", "launches", "start", "end")

Run = Annotated[
    str | None,
    typer.Option("--run", envvar="RANKSCOPE_RUN_ID", help="Look in this run only.", show_default="all", callback=named),
]
After = Annotated[
    str | None, typer.Option(help="Where the last page ended: its `next`.", show_default="the first page")
]


class FailIf(StrEnum):
    """When a query fails the job that asks it."""

    ANY = "any"
    NONE = "none"


class Doubt(StrEnum):
    """Which absences make it doubtful that there is no row."""

    ANY = "any"
    LOST = "lost"


@app.command("query", short_help="Ask in TQL.")
def query(  # noqa: PLR0913 - one for each option
    tql: Annotated[str, typer.Argument(metavar="TQL", help="The query; - reads it from stdin.")],
    run: Run = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 20,
    after: After = None,
    fail_if: Annotated[
        FailIf | None,
        typer.Option(
            help="Exit with 4 where it finds any row, or none; with 5 where none, but over a gap. Needs --run."
        ),
    ] = None,
    gaps: Annotated[
        Doubt, typer.Option(help="Which absences count as a gap: any, or only those of rows that were lost.")
    ] = Doubt.ANY,
    csv: Csv = False,
    arrow: Arrow = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> int:
    """Ask in TQL: which tensors, which spans, on which rank, in which step. query_api/TQL.md is its manual.

    Example: rankscope query 'tensor.nonfinite_count > 0 | first' --json
    """
    form, text = form_of(as_json=as_json, csv=csv, arrow=arrow), text_of(tql)
    if fail_if and run is None:
        raise WrongCallError("--fail-if needs --run: it is a run whose absences are known")
    with Source(home, url, project).client() as client:
        asking = Asking(client, project, run)
        if form in {"csv", "arrow"}:
            write(asking.tql_as(form, text, limit=limit, after=after), arrow)
            answer = asking.tql(text, limit=1) if fail_if else {}
        else:
            answer = asking.tql(text, limit=limit, after=after)
    if form == "json":
        say_json(answer)
    elif form == "table":
        say_rows(answer, query=text)
    return verdict(answer, fail_if, gaps=gaps) if fail_if else OK


def text_of(argument: str) -> str:
    """A query as it was given, or from stdin."""
    return sys.stdin.read().strip() if argument == "-" else argument


def verdict(answer: Json, fail_if: FailIf, *, gaps: Doubt) -> int:
    """The exit status that an answer means to a job, with a remark on stderr where it is not 0."""
    total = int(answer["total"])
    found: Sequence[Mapping[str, Any]] = answer["gaps"]
    absences = [gap for gap in found if gaps is Doubt.ANY or gap["class"] == gaps]
    if not total and absences:
        causes = ", ".join(sorted({str(gap["cause"]) for gap in absences}))
        say_aside(f"no rows, but {plural(len(absences), 'gap')} where there could be some ({causes})")
        return OVER_GAP
    if (total > 0) == (fail_if is FailIf.ANY):
        say_aside(f"{plural(total, 'row')}: fails as --fail-if {fail_if} asks")
        return FAILED_IF
    return OK


@app.command("runs", short_help="Which runs there are.")
def runs(
    limit: Annotated[int, typer.Option(min=1, help="Runs to show.")] = 20,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Which runs there are, the latest first.

    Example: rankscope runs --json
    """
    with Source(home, url, project).client() as client:
        answer = client.get("/runs", project=project, limit=limit)
    if as_json:
        say_json(answer)
        return
    say_rows(answer, columns=RUN_COLUMNS)


def say_rows(answer: Json, *, query: str = "", columns: Sequence[str] | None = None) -> None:
    """The rows of an answer as a table, and what it says beside them."""
    rows: Sequence[Mapping[str, Any]] = answer["items"]
    shown, chosen = laid_out(rows, query)
    for line in table(shown, columns or chosen) if shown else ["no rows"]:
        say(line)
    say_warnings(answer)
    say_rest(answer)
