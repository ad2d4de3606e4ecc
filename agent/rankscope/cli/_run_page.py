"""The page on which `rankscope doctor RUN` tells how far what is said of a run can be trusted, and what is said.

Beside completeness (`_run_health`): how well its clocks are known, what was not captured and why, whether it hangs,
what the rules found. A query service that is older than an answer is not asked to guess it: the page says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.cli._errors import FAILED, FAILED_IF, OK
from rankscope.cli._output import duration, plural
from rankscope.cli._run_health import is_whole, run_lines, run_report
from rankscope.client import printable
from rankscope.up import Client, Json, RefusedError, quoted

TOLD = 8
"""Gaps and findings that are told one by one."""

RANKS_TOLD = 6
"""Stretches of ranks that a line names."""

NOT_ASKED = "not known: the query service is older than this question"

ASKED = ("clocks", "findings", "hang")

UNKNOWN_ROUTE = "unknown_route"

Item = Mapping[str, Any]


def run_page(client: Client, run: str, *, project: str | None) -> Json:
    """What `run_report` tells, and the answers `clocks`, `findings` and `hang`; None: the service has no such route.

    Raises:
        RefusedError: there is no such run.
        UnreachableError: the query service did not answer.
    """
    report = run_report(client, run, project=project)
    return {**report, **{name: _answer(client, run, name=name, project=project) for name in ASKED}}


def page_status(page: Mapping[str, Any]) -> int:
    """The exit status: rows or processes that are missing come before a run that hangs."""
    if not is_whole(page):
        return FAILED
    hang = page["hang"]
    return FAILED_IF if hang and hang["verdict"] else OK


def page_lines(page: Mapping[str, Any] | None) -> list[str]:
    """The page for people: each part is there, also where there is nothing to say."""
    if page is None:
        return []
    return [
        *run_lines(page),
        "",
        *_part("clocks", _clock_lines(page["clocks"])),
        *_part("gaps", _gap_lines(page["run"]["gaps"])),
        *_part("hang", _hang_lines(page["hang"])),
        *_part("findings", _finding_lines(page["findings"])),
    ]


def _answer(client: Client, run: str, *, name: str, project: str | None) -> Json | None:
    try:
        return client.get(f"/runs/{quoted(run)}/{name}", project=project)
    except RefusedError as error:
        if error.code != UNKNOWN_ROUTE:
            raise
        return None


def _part(title: str, lines: Sequence[str]) -> list[str]:
    """Lines under a title that stands at the margin of the first."""
    margins = [title, *[""] * (len(lines) - 1)]
    return [f"{margin:<10} {line}" for margin, line in zip(margins, lines, strict=True)]


def _clock_lines(clocks: Item | None) -> list[str]:
    if clocks is None:
        return [NOT_ASKED]
    items: Sequence[Item] = clocks["items"]
    measured = [item for item in items if item["error_ns"] is not None]
    warnings = [f"warning: {printable(warning)}" for warning in clocks["warnings"]]
    if not measured:
        return ["none was measured: times of different nodes are not ordered", *warnings]
    error = max(int(item["error_ns"]) for item in measured)
    offsets = [int(item["offset_ns"]) for item in measured]
    apart = f", {duration(max(offsets) - min(offsets))} apart at most" if len(measured) > 1 else ""
    said = f"{len(measured)} of {len(items)} measured, to within {duration(error)}{apart}"
    return [said, *warnings]


def _gap_lines(gaps: Sequence[Item]) -> list[str]:
    if not gaps:
        return ["none"]
    lines = [_gap_line(gap) for gap in gaps[:TOLD]]
    return [*lines, *_rest(len(gaps) - TOLD, "gap")]


def _gap_line(gap: Item) -> str:
    count = f"{int(gap['count']):,} rows of " if gap["count"] else ""
    state = str(gap["class"]).replace("_", " ")
    details: Sequence[str] = gap["details"]
    why = f": {'; '.join(map(printable, details))}" if details else ""
    return f"{count}{gap['data_kind']} {state} ({gap['cause']}), {ranks_said(gap['ranks'])}{why}"


def _hang_lines(hang: Item | None) -> list[str]:
    if hang is None:
        return [NOT_ASKED]
    verdict: Item | None = hang["verdict"]
    warnings = [f"warning: {printable(warning)}" for warning in hang["warnings"]]
    return [printable(verdict["sentence"]) if verdict else "none", *warnings]


def _finding_lines(findings: Item | None) -> list[str]:
    if findings is None or "items" not in findings:
        return [NOT_ASKED]
    items: Sequence[Item] = findings["items"]
    if not items:
        return ["none is stored; `rankscope check RUN` judges the run now"]
    lines = [f"{item['severity']}: {printable(item['sentence'])} ({item['rule']})" for item in items[:TOLD]]
    return [*lines, *_rest(len(items) - TOLD, "finding")]


def _rest(count: int, noun: str) -> list[str]:
    return [f"and {plural(count, f'more {noun}')}"] if count > 0 else []


def ranks_said(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 7`: stretches, of many the first."""
    stretches: list[list[int]] = []
    for rank in sorted(ranks):
        if stretches and rank == stretches[-1][-1] + 1:
            stretches[-1].append(rank)
        else:
            stretches.append([rank])
    shown = [str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in stretches[:RANKS_TOLD]]
    more = ", …" if len(stretches) > RANKS_TOLD else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(shown)}{more}"
