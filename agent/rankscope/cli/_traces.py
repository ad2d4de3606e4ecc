"""`rankscope traces`: which traces a run or a project has, by what their spans are and what they contain."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from rankscope.cli._app import app
from rankscope.cli._output import duration, say_json, say_rest, say_warnings
from rankscope.cli._source import AsJson, Home, Project, Source, Url, named
from rankscope.cli._table import say_table
from rankscope.up import Json, quoted

TRACES_SHOWN = 20

COLUMNS = ("trace_id", "start", "duration", "status", "kind", "name", "step", "spans", "errors", "tokens")

SECONDS = len("2026-11-29T18:21:53")
"""Of a start as ISO-8601, what a table shows."""

RunOrAll = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        envvar="RANKSCOPE_RUN_ID",
        help="The run.",
        show_default="all runs, the last 7 days",
        callback=named,
    ),
]


@app.command("traces", short_help="Which traces there are, with filters and search.")
def traces(  # noqa: PLR0913 - one for each option
    run: RunOrAll = None,
    search: Annotated[
        str | None,
        typer.Option("--search", "-q", help="Up to 8 words that occur in names, ids, labels or previews of its spans."),
    ] = None,
    status: Annotated[str | None, typer.Option(help="Status: ok, error, running, cancelled, interrupted.")] = None,
    kind: Annotated[str | None, typer.Option(help="Kind of a span, such as rollout or tool.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of a span, exactly.")] = None,
    rank: Annotated[int | None, typer.Option(min=-1, help="Rank of a span.")] = None,
    step: Annotated[str | None, typer.Option(help="Step of a span, or a range: 40, 40:60, 40:, :60.")] = None,
    attribute: Annotated[
        list[str] | None, typer.Option(help="An attribute of a span, as key=value; repeat it for more.")
    ] = None,
    error_type: Annotated[str | None, typer.Option(help="Class of the exception that ended a span.")] = None,
    min_ms: Annotated[float | None, typer.Option(min=0, help="Least duration, in ms.")] = None,
    max_ms: Annotated[float | None, typer.Option(min=0, help="Greatest duration, in ms.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="Least start, as 2026-11-29T18:00:00Z.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Start, exclusive.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Traces to show.")] = TRACES_SHOWN,
    after: Annotated[
        str | None, typer.Option(help="Where the last page ended: its `next`.", show_default="the first page")
    ] = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Which traces there are, the latest first: those with one span that is as the options say of a span.

    Example: rankscope traces demo-1 --status error -q 'rollout search'
    """
    first_step, last_step = step_range(step)
    asked: dict[str, Any] = {
        "q": search,
        "status": status,
        "kind": kind,
        "name": name,
        "rank": rank,
        "attribute": attribute,
        "error_type": error_type,
        "min_step": first_step,
        "max_step": last_step,
        "min_duration_ms": min_ms,
        "max_duration_ms": max_ms,
        "from": since,
        "to": until,
        "limit": limit,
        "after": after,
        "project": project,
    }
    with Source(home, url, project).client() as client:
        answer = client.get(f"/runs/{quoted(run)}/traces" if run else "/traces", **asked)
    if as_json:
        say_json(answer)
        return
    _say_traces(answer, has_run=run is not None)


def step_range(text: str | None) -> tuple[int | None, int | None]:
    """The least and greatest step that a text means; None: no bound.

    Raises:
        BadParameter: it is neither a step nor a range of steps.
    """
    if text is None:
        return None, None
    first, colon, last = text.partition(":")
    try:
        least = int(first) if first else None
        return (least, int(last) if last else None) if colon else (int(first), int(first))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no step and no range of steps, as 40 and 40:60 are") from error


def _say_traces(answer: Json, *, has_run: bool) -> None:
    rows = [_row(trace) for trace in answer["items"]]
    columns = COLUMNS if has_run else ("run_id", *COLUMNS)
    say_table(rows, columns, none="no traces")
    say_warnings(answer)
    say_rest(answer)


def _row(trace: Mapping[str, Any]) -> dict[str, Any]:
    steps: Sequence[Any] = sorted({trace["first_step"], trace["last_step"]} - {None})
    tokens = [trace["input_tokens"], trace["output_tokens"]]
    return {
        **trace,
        "start": str(trace["start"])[:SECONDS],
        "duration": duration(trace["duration_ns"]),
        "step": "-".join(map(str, steps)) or None,
        "tokens": None if tokens == [None, None] else sum(count or 0 for count in tokens),
    }
