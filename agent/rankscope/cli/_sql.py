"""`rankscope sql`: one SELECT over the documented views, with bound parameters."""

import json
import re
from typing import Annotated

import typer

from rankscope.cli._app import app
from rankscope.cli._forms import Arrow, Csv, form_of, write
from rankscope.cli._output import say_json, say_warnings
from rankscope.cli._read import Run, text_of
from rankscope.cli._source import AsJson, Home, Project, Source, Url
from rankscope.cli._table import say_table
from rankscope.client import Asking

_IS_TEXT = r"\{\s*%s\s*:\s*(?:Nullable\()?String"


@app.command("sql", short_help="Ask with a SELECT over the documented views.")
def sql(  # noqa: PLR0913 - one for each option
    text: Annotated[str, typer.Argument(metavar="SELECT", help="The statement; - reads it from stdin.")],
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="The value of a {name:Type}; repeat it for more."),
    ] = None,
    run: Run = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Most rows.")] = 100,
    csv: Csv = False,
    arrow: Arrow = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """One SELECT over spans, tensor_stats, metrics, gaps, runs, modules, events, hits, otel_traces: query_api/VIEWS.md.

    Example: rankscope sql 'SELECT name, count() FROM spans WHERE rank = {rank:Int32} GROUP BY name' -p rank=0 --csv
    """
    form, statement = form_of(as_json=as_json, csv=csv, arrow=arrow), text_of(text)
    values = {name: _value(name, given, statement=statement) for name, given in map(_parted, parameter or ())}
    with Source(home, url, project).client() as client:
        asking = Asking(client, project, run)
        if form in {"csv", "arrow"}:
            write(asking.sql_as(form, statement, parameters=values, limit=limit), arrow)
            return
        answer = asking.sql(statement, parameters=values, limit=limit)
    if form == "json":
        say_json(answer)
        return
    columns = [str(column["name"]) for column in answer["columns"]]
    say_table(answer["items"], columns)
    say_warnings(answer)


def _parted(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name.isidentifier():
        raise typer.BadParameter(f"{given!r} is no name=value, as rank=0 is")
    return name, value


def _value(name: str, given: str, *, statement: str) -> object:
    """A text where the statement wants one, else what it is as JSON: 3, 0.5, true, [1, 2]."""
    if re.search(_IS_TEXT % re.escape(name), statement):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given
