"""`rankscope query` and `rankscope runs`: rows from the query service, for people and for programs."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from rankscope.cli._app import app
from rankscope.cli._columns import laid_out
from rankscope.cli._errors import OK
from rankscope.cli._forms import Arrow, Csv, form_of, write
from rankscope.cli._output import say_json, say_rest, say_warnings
from rankscope.cli._source import AsJson, Home, Project, Source, Url, named
from rankscope.cli._table import say_table
from rankscope.cli._verdict import Doubt, FailIf, Told
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


@app.command("query", short_help="Ask in TQL.")
def query(  # noqa: PLR0913 - one for each option
    tql: Annotated[str, typer.Argument(metavar="TQL", help="The query; - reads it from stdin.")],
    run: Run = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Rows to show.")] = 20,
    after: After = None,
    fail_if: Annotated[
        FailIf | None,
        typer.Option(help="Exit with 4 where it finds any row, or none; with 5 where none, but over a gap."),
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
    with Source(home, url, project).client() as client:
        asking = Asking(client, project, run)
        if form in {"csv", "arrow"}:
            body = asking.tql_as(form, text, limit=limit, after=after)
            write(body, arrow)
            told = Told.of_body(body)
        else:
            answer = asking.tql(text, limit=limit, after=after)
            told = Told.of_json(answer)
            if form == "json":
                say_json(answer)
            else:
                say_rows(answer, query=text)
    if told.is_doubtful(gaps) and (fail_if or form != "json"):
        told.say_doubt(gaps)
    return told.status(fail_if, doubt=gaps) if fail_if else OK


def text_of(argument: str) -> str:
    """A query as it was given, or from stdin."""
    return sys.stdin.read().strip() if argument == "-" else argument


@app.command("runs", short_help="Which runs there are.")
def runs(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Runs to show.")] = 20,
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
    say_table(shown, columns or chosen)
    say_warnings(answer)
    say_rest(answer)
