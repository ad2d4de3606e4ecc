"""`rankscope explain`: what a TQL query becomes, for who wants to go on in SQL or wonders what is read."""

from typing import Annotated

import typer

from rankscope.cli._app import app
from rankscope.cli._output import say, say_json
from rankscope.cli._read import Run, text_of
from rankscope.cli._source import AsJson, Home, Project, Source, Url
from rankscope.client import Asking
from rankscope.up import Json


@app.command("explain", short_help="The SQL of a TQL query, and what it reads.")
def explain(
    tql: Annotated[str, typer.Argument(metavar="TQL", help="The query; - reads it from stdin.")],
    run: Run = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """The query as the formatter writes it, what its rows are, what is joined, its SQL and the values in it.

    Example: rankscope explain 'span.kind == "rollout" >> span.status == "error"'
    """
    text = text_of(tql)
    with Source(home, url, project).client() as client:
        answer = Asking(client, project, run).explain(text)
    if as_json:
        say_json(answer)
        return
    for line in _lines(answer):
        say(line)


def _lines(answer: Json) -> list[str]:
    parameters: dict[str, object] = answer["parameters"]
    return [
        str(answer["text"]),
        f"rows: {answer['entity']}",
        *(f"joined: {join}" for join in answer["joins"]),
        "",
        *str(answer["sql"]).splitlines(),
        "",
        *(f"{name} = {value!r}" for name, value in parameters.items()),
    ]
