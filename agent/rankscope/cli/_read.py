"""`rankscope query` and `rankscope runs`: rows from the query service, as a table or as JSON."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from rankscope.cli._app import app
from rankscope.cli._columns import laid_out
from rankscope.cli._errors import QueryRefusedError
from rankscope.cli._output import say, say_json, say_rest, say_warnings, table
from rankscope.cli._source import AsJson, Home, Project, Source, Url, named
from rankscope.up import Client, Json, RefusedError

RUN_COLUMNS = ("run_id", "status", "ranks", "launches", "start", "end")


@app.command("query", short_help="Ask in TQL.")
def query(  # noqa: PLR0913 - one for each option
    tql: Annotated[str, typer.Argument(metavar="TQL", help="The query; - reads it from stdin.")],
    run: Annotated[
        str | None,
        typer.Option(
            "--run", envvar="RANKSCOPE_RUN_ID", help="Look in this run only.", show_default="all", callback=named
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 20,
    after: Annotated[
        str | None, typer.Option(help="Where the last page ended: its `next`.", show_default="the first page")
    ] = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Ask in TQL: which tensors, which spans, on which rank, in which step.

    Example: rankscope query 'tensor.nonfinite_count > 0 | first' --json
    """
    text = sys.stdin.read().strip() if tql == "-" else tql
    with Source(home, url, project).client() as client:
        answer = ask(client, text, project=project, run=run, limit=limit, after=after)
    if as_json:
        say_json(answer)
        return
    _say_rows(answer, query=text)


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
    _say_rows(answer, columns=RUN_COLUMNS)


def ask(
    client: Client,
    text: str,
    *,
    project: str | None,
    run: str | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Json:
    """The answer to a TQL query.

    Raises:
        QueryRefusedError: the text cannot be read or meant, or its run is unknown.
        UnreachableError: the query service did not answer.
    """
    body = {"query": text, "run": run, "limit": limit, "after": after}
    try:
        return client.post("/tql", body, project=project)
    except RefusedError as refused:
        raise QueryRefusedError(refused, text) from refused


def _say_rows(answer: Json, *, query: str = "", columns: Sequence[str] | None = None) -> None:
    rows: Sequence[Mapping[str, Any]] = answer["items"]
    shown, chosen = laid_out(rows, query)
    for line in table(shown, columns or chosen) if shown else ["no rows"]:
        say(line)
    say_warnings(answer)
    say_rest(answer)
