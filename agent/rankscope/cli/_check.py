"""`rankscope check`: judges a run by rules, for jobs that must fail when one fires."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from rankscope.cli._app import app
from rankscope.cli._errors import FAILED_IF, OK, OVER_GAP
from rankscope.cli._output import plural, say, say_aside, say_json
from rankscope.cli._profile import RunNamed
from rankscope.cli._source import AsJson, Home, Project, Source, Url
from rankscope.client import printable
from rankscope.up import Json, quoted

Item = Mapping[str, Any]


@app.command("check", short_help="Judge a run by rules, and fail where one fires.")
def check(  # noqa: PLR0913 - one for each option
    run: RunNamed,
    rule: Annotated[list[str] | None, typer.Option(help="This rule; may be given again.", show_default="all")] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(help="rule.threshold=value in place of a default.", show_default="")
    ] = None,
    home: Home = None,
    url: Url = None,
    project: Project = None,
    as_json: AsJson = False,
) -> int:
    """Judge a run by rules; what they find is kept where the key may write, each finding once.

    Exit 4 where a rule fired (one that is more than info), 5 where none did but nothing could be judged, or over rows
    that were lost; 0 otherwise.

    Example: rankscope check demo-1 --rule hang --rule nonfinite
    """
    body = {"rules": rule or [], "thresholds": threshold or []}
    with Source(home, url, project).client() as client:
        answer = client.post(f"/runs/{quoted(run)}/check", body, project=project)
    if as_json:
        say_json(answer)
    else:
        _say_check(answer)
    return status_of_check(answer)


def status_of_check(answer: Json) -> int:
    """The exit status of a check."""
    if answer["has_fired"]:
        return FAILED_IF
    rules: Sequence[Item] = answer["rules"]
    return OVER_GAP if not any(rule["is_judged"] for rule in rules) or _lost(answer) else OK


def _lost(answer: Json) -> Sequence[str]:
    """The causes for which rows were lost."""
    gaps: Sequence[Item] = answer["gaps"]
    return sorted({str(gap["cause"]) for gap in gaps if gap["class"] == "lost"})


def _say_check(answer: Json) -> None:
    findings: Sequence[Item] = answer["findings"]
    rules: Sequence[Item] = answer["rules"]
    for finding in findings:
        say(f"{finding['severity']}  {finding['rule']} v{finding['version']}: {printable(finding['sentence'])}")
    judged = [rule for rule in rules if rule["is_judged"]]
    if not findings:
        say(f"no findings by {plural(len(judged), 'rule')}")
    for rule in rules:
        if not rule["is_judged"]:
            say_aside(f"{rule['name']} did not judge: {rule['why_not']}")
    if lost := _lost(answer):
        say_aside(f"rows were lost ({', '.join(lost)}): what they held was not judged")
    if refused := next((finding for finding in findings if not finding["stored"]), None):
        say_aside(f"not stored: {refused['why_not_stored']}")
