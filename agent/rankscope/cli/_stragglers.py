"""`rankscope stragglers`: who makes the others wait, how much, why, and in which steps."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from rankscope.cli._app import app
from rankscope.cli._output import say, say_json, say_warnings
from rankscope.cli._profile import RunNamed
from rankscope.cli._source import AsJson, Home, Project, Source, Url
from rankscope.cli._table import say_table
from rankscope.client import printable
from rankscope.up import Parameter, quoted

COLUMNS = ("name", "node", "charged", "share", "steps", "every", "since", "lost", "confidence", "causes", "worst")

_MS = 10**6


@app.command("stragglers", short_help="Who makes the others wait, how much and why.")
def stragglers(  # noqa: PLR0913 - one for each option
    run: RunNamed,
    launch: Annotated[str | None, typer.Option(help="Launch id or attempt.", show_default="the latest")] = None,
    first: Annotated[int | None, typer.Option("--from", min=0, help="First step.")] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last step.")] = None,
    by: Annotated[str, typer.Option(help="What waits are counted for: rank, node or mesh.AXIS.")] = "rank",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most of those charged that are listed.")] = 10,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Who comes last to collectives by its own doing, and what the others wait for it.

    A straggler does so until the last step, nearly always in each or in every k-th step, far above the noise; the
    others that are charged come last now and then.

    Example: rankscope stragglers demo-1 --by node
    """
    asked: dict[str, Parameter] = {"launch": launch, "from": first, "to": last, "by": by, "limit": limit}
    with Source(home, url, project).client() as client:
        answer = client.get(f"/runs/{quoted(run)}/stragglers", **asked, project=project)
    if as_json:
        say_json(answer)
        return
    for line in summary(answer):
        say(line)
    say_table([_row(item) for item in answer["items"]], COLUMNS, none="nobody is charged")
    for place in answer["unmatched"]:
        say(_unmatched(place))
    say_warnings(answer)


def summary(answer: Mapping[str, Any]) -> list[str]:
    """Who is a straggler, a sentence each, and what the waits come to."""
    found = [_sentence(item) for item in answer["items"] if item["is_straggler"]] or ["no straggler"]
    steps = answer["judged_steps"]
    where = f"steps {steps['from']} to {steps['to']}" if steps else "no steps"
    judged = f"{where}, judged by {answer['judged_by']}"
    if answer["total_wait_ns"] is None:
        return [*found, judged]
    parts = ("charged", "received", "uncertain")
    waits = ", ".join(f"{name} {_ms(answer[f'{name}_ns'])}" for name in parts)
    whole = f"{answer['collectives']} collectives, waits of {_ms(answer['total_wait_ns'])} ({waits})"
    return [*found, f"{judged}: {whole}, transfers of {_ms(answer['transfer_ns'])}"]


def _sentence(item: Mapping[str, Any]) -> str:
    often = "each step" if item["every"] == 1 else f"every {item['every']} steps"
    share = f"{item['share_of_step']:.0%} of the step"
    cause = item["cause"] or "several causes"
    return (
        f"straggler: {printable(item['name'])}, {often} since step {item['since_step']}, by {cause}: "
        f"the others lose {_ms(item['lost_ns'])} each time ({share})"
    )


def _row(item: Mapping[str, Any]) -> dict[str, Any]:
    causes: Sequence[Mapping[str, Any]] = item["causes"]
    worst: Sequence[Mapping[str, Any]] = item["worst"]
    told = [cause["cause"] + ("" if cause["wait_ns"] is None else f" {_ms(cause['wait_ns'])}") for cause in causes]
    return {
        "name": item["name"],
        "node": item["node"],
        "charged": _ms(item["charged_ns"]),
        "share": "" if item["share"] is None else f"{item['share']:.0%}",
        "steps": item["steps"],
        "every": item["every"],
        "since": item["since_step"],
        "lost": _ms(item["lost_ns"]),
        "confidence": "" if item["confidence"] is None else f"{item['confidence']:.3f}",
        "causes": ", ".join(told),
        "worst": ", ".join(f"{where_met(place)} {_ms(place['wait_ns'])}" for place in worst),
    }


def _unmatched(place: Mapping[str, Any]) -> str:
    missing = f"; missing: {', '.join(map(str, place['missing_ranks']))}" if place["missing_ranks"] else ""
    return (
        f"{printable(place['op'])} #{place['seq']} of group {printable(place['group'])}, {where_met(place)}: "
        f"{place['detail']}{missing}"
    )


def where_met(place: Mapping[str, Any]) -> str:
    """In which step ranks met; those of a constructor meet in none."""
    return "outside a step" if place["step"] is None else f"step {place['step']}"


def _ms(time_ns: str | int | None) -> str:
    return "" if time_ns is None else f"{int(time_ns) / _MS:,.1f} ms"
