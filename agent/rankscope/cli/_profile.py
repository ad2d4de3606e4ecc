"""`rankscope profile` and `rankscope hits`: a statistic across the layers of a model, and what breakpoints caught."""

import csv as csv_module
import io
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from rankscope.cli._app import app
from rankscope.cli._forms import Csv, form_of
from rankscope.cli._output import plural, say, say_aside, say_json
from rankscope.cli._read import After, say_rows
from rankscope.cli._source import AsJson, Home, Project, Source, Url, named
from rankscope.cli._table import say_table
from rankscope.up import Json, Parameter, quoted

BARS = "▁▂▃▄▅▆▇█"

HIT_COLUMNS = ("breakpoint", "rank", "step", "name", "role", "mode", "action", "count", "seen")

CSV_COLUMNS = (
    *("step", "layer", "layer_index", "layer_type", "value", "low", "high", "numel", "ranks", "tensors", "steps"),
    "is_whole",
)

Item = Mapping[str, Any]

RunNamed = Annotated[
    str, typer.Argument(metavar="RUN", envvar="RANKSCOPE_RUN_ID", help="The run.", callback=named, show_default=False)
]
First = Annotated[int | None, typer.Option("--from", min=0, help="First step of a range.", show_default="")]
Last = Annotated[int | None, typer.Option("--to", min=0, help="Its last step.", show_default="")]


@app.command("profile", short_help="A statistic of the tensors of each layer.")
def profile(  # noqa: PLR0913 - one for each option
    run: RunNamed,
    statistic: Annotated[str, typer.Option(help="Any statistic, or a quantile such as p95.")] = "l2",
    role: Annotated[str, typer.Option(help="weight, grad, activation, …")] = "grad",
    step: Annotated[int | None, typer.Option(min=0, help="One step.", show_default="the last that has it")] = None,
    first: First = None,
    last: Last = None,
    by_step: Annotated[bool, typer.Option("--by-step", help="Step by layer: a line a layer, a bar a step.")] = False,
    rank: Annotated[list[int] | None, typer.Option(help="These ranks only.", show_default="all")] = None,
    csv: Csv = False,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """A statistic of the tensors of each layer, in the order of the model: at a step, over a range, or step by layer.

    Parts of a tensor that is sharded over ranks are put together; where that is impossible, a value has a ~.

    Example: rankscope profile demo-1 --statistic absmax --role activation
    """
    form = form_of(as_json=as_json, csv=csv, arrow=None)
    asked: dict[str, Parameter] = {"statistic": statistic, "role": role, "step": step, "from": first, "to": last}
    asked |= {"by": "step" if by_step else "layer", "rank": [str(one) for one in rank or ()]}
    with Source(home, url, project).client() as client:
        answer = client.get(f"/runs/{quoted(run)}/layer-profile", project=project, **asked)
    if form == "json":
        say_json(answer)
    elif form == "csv":
        say(as_csv(answer["items"]))
    else:
        _say_profile(answer, by_step=by_step)


@app.command("hits", short_help="What breakpoints caught.")
def hits(  # noqa: PLR0913 - one for each option
    run: RunNamed,
    breakpoint_name: Annotated[
        str | None, typer.Option("--breakpoint", help="Of this breakpoint only.", show_default="all")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Hits to show.")] = 20,
    after: After = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """What breakpoints caught: which tensor of which rank in which step, and what the condition saw.

    Example: rankscope hits demo-1 --breakpoint overflow
    """
    asked: dict[str, Parameter] = {"breakpoint": breakpoint_name, "project": project, "limit": limit, "after": after}
    with Source(home, url, project).client() as client:
        answer = client.get(f"/runs/{quoted(run)}/hits", **asked)
    if as_json:
        say_json(answer)
    else:
        say_rows(answer, columns=HIT_COLUMNS)


def as_csv(items: Sequence[Item]) -> str:
    """The items with a header; a column that none has is left out."""
    columns = [name for name in CSV_COLUMNS if any(name in item for item in items)] or list(CSV_COLUMNS)
    written = io.StringIO()
    rows = csv_module.DictWriter(written, columns, extrasaction="ignore", lineterminator="\n")
    rows.writeheader()
    rows.writerows(items)
    return written.getvalue().rstrip("\n")


def _say_profile(answer: Json, *, by_step: bool) -> None:
    items: Sequence[Item] = answer["items"]
    steps = answer["from"] if answer["from"] == answer["to"] else f"{answer['from']} to {answer['to']}"
    if items:
        say(f"{answer['statistic']} of {answer['role']} at step {steps}")
    say_table(by_layer(items) if by_step else _lines(items), ("layer", "type", "value", "low", "high", "bar"))
    if gaps := answer["gaps"]:
        say_aside(f"{plural(len(gaps), 'gap')}: not everything was captured; --json tells what")
    if answer["truncated"]:
        say_aside("there is more than one answer holds: ask for fewer steps")


def _lines(items: Sequence[Item]) -> list[dict[str, Any]]:
    bars = bars_of([item["value"] for item in items])
    return [_line(item) | {"bar": bar} for item, bar in zip(items, bars, strict=True)]


def by_layer(items: Sequence[Item]) -> list[dict[str, Any]]:
    """A line a layer: its last value, and a bar for each step, "·" where it has none; items are in order of step."""
    bars = bars_of([item["value"] for item in items])
    at = {(item["layer"], item["step"]): bar for item, bar in zip(items, bars, strict=True)}
    steps = dict.fromkeys(item["step"] for item in items)
    last = {item["layer"]: item for item in items}
    return [
        _line(item) | {"bar": "".join(at.get((layer, step), "·") for step in steps)} for layer, item in last.items()
    ]


def _line(item: Item) -> dict[str, Any]:
    shown = {"layer": item["layer"] or ".", "type": item["layer_type"], "value": _number(item["value"])}
    shown["value"] += "" if item["is_whole"] else " ~"
    if item.get("low") != item.get("high"):
        shown |= {"low": _number(item["low"]), "high": _number(item["high"])}
    return shown


def _number(value: float | str | None) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def bars_of(values: Sequence[float | str | None]) -> list[str]:
    """A bar for each value, by its logarithm between those of the least and the greatest; "!" of what is not finite.

    Args:
        values: As JSON has them: a text where it is not finite.
    """
    known = [math.log2(abs(value)) for value in values if isinstance(value, int | float) and value]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return [_bar(value, low, high=high) for value in values]


def _bar(value: float | str | None, low: float, *, high: float) -> str:
    if not isinstance(value, int | float):
        return "!"
    if not value:
        return " "
    share = (math.log2(abs(value)) - low) / (high - low) if high > low else 1.0
    return BARS[round(share * (len(BARS) - 1))]
