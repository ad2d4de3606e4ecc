"""`rankscope hang`: whether a run hangs, who keeps it and where; with --follow until it does or is over."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import typer

from rankscope.cli._app import app
from rankscope.cli._errors import FAILED_IF, OK
from rankscope.cli._output import await_reader, say, say_aside, say_json, say_warnings
from rankscope.cli._profile import RunNamed
from rankscope.cli._source import AsJson, Home, Project, Source, Url
from rankscope.cli._table import say_table
from rankscope.client import printable
from rankscope.up import Client, Json, Parameter, RefusedError, UnreachableError, quoted

COLUMNS = ("rank", "state", "step", "phase", "group", "seq", "over", "op", "node", "heard")

FRAMES = 12
"""Most frames that are shown of a stack, the innermost."""

PASSING = frozenset({429, 502, 503, 504})
"""HTTP statuses of a service that may answer the next time."""

_OVER = frozenset({"ended", "dead"})


@app.command("hang", short_help="Whether a run hangs, who keeps it, and where.")
def hang(  # noqa: PLR0913 - one for each option
    run: RunNamed,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Look again until it hangs or is over.")] = False,
    every: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between two looks.")] = 2.0,
    threshold: Annotated[
        list[str] | None, typer.Option(help="name=value in place of a default, as still_s=10.", show_default="")
    ] = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> int:
    """Whether a run hangs: which rank did not come, entered another collective, died or is stuck, and who waits.

    Exit 4 on a verdict, 0 without one.

    Example: rankscope hang demo-1 --follow
    """
    asked: dict[str, Parameter] = {"project": project, "threshold": threshold or None}
    with Source(home, url, project).client() as client:
        answer = client.get(f"/runs/{quoted(run)}/hang", **asked)
        while follow and answer["verdict"] is None and not _is_over(answer):
            await_reader(every)
            answer = _again(client, run, asked=asked) or answer
    if as_json:
        say_json(answer)
    else:
        _say_hang(answer)
    return OK if answer["verdict"] is None else FAILED_IF


def _again(client: Client, run: str, *, asked: Mapping[str, Parameter]) -> Json | None:
    """The next answer; None: the service does not answer just now."""
    try:
        return client.get(f"/runs/{quoted(run)}/hang", **asked)
    except UnreachableError as error:
        say_aside(f"{error}; asked again until it answers")
    except RefusedError as error:
        if error.status not in PASSING:
            raise
    return None


def _is_over(answer: Json) -> bool:
    processes: Sequence[Mapping[str, Any]] = answer["processes"]
    return bool(processes) and all(process["state"] in _OVER for process in processes)


def _say_hang(answer: Json) -> None:
    verdict: Mapping[str, Any] | None = answer["verdict"]
    if verdict is None:
        say("no hang")
    else:
        say(f"{verdict['kind']}: {printable(verdict['sentence'])}")
        say(f"since {verdict['since']}, {verdict['confidence']}" + _where(verdict))
        for line in stack_lines(verdict["stack"]):
            say(line)
    say_table(answer["processes"], COLUMNS, none="no agent says where its processes stand")
    say_warnings(answer)


def _where(verdict: Mapping[str, Any]) -> str:
    parts = [f"step {verdict['step']}"] if verdict["step"] is not None else []
    parts += [str(verdict[name]) for name in ("phase", "module") if verdict[name]]
    return "".join(f", {printable(part)}" for part in parts)


def stack_lines(stack: object) -> list[str]:
    """A stack as its agent wrote it, a line a frame, innermost first."""
    if not isinstance(stack, list):
        return [f"  {printable(line)}" for line in str(stack or "").splitlines()[:FRAMES]]
    lines: list[str] = []
    threads = cast("Sequence[Mapping[str, Any]]", stack)
    for thread in threads:
        holds = " (holds the interpreter)" if thread.get("gil") else ""
        lines.append(f"  thread {printable(thread['thread'])}{holds}")
        lines += [f"    {printable(frame)}" for frame in thread["frames"][:FRAMES]]
    return lines
