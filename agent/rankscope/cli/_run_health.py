"""Whether a run's data is all there, and what its processes are doing, as `rankscope doctor` tells it.

What has arrived can be counted; what has not can only be known from a process that said its last word. So the word
"complete" is kept for a run of which every rank was heard and every process has ended.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.cli._table import table
from rankscope.up import Client, Json, quoted

PROCESSES_TOLD = 8
LAUNCHES_TOLD = 8
INTERVAL_S = 0.2
COST = "rankscope.probe.cost"
"""The metric in which a run says what observing costs it, as a share of step time."""


def run_report(client: Client, run: str, *, project: str | None) -> Json:
    """A run's `completeness` and how it stands (`run`).

    A run whose last rows may be on their way into the store is asked again, for as long as the client's patience.

    Raises:
        RefusedError: there is no such run.
        UnreachableError: the query service did not answer.
    """
    deadline = time.monotonic() + client.patience_s
    while True:
        completeness = client.get(f"/runs/{quoted(run)}/completeness", project=project)
        state = state_of(client.get(f"/runs/{quoted(run)}", project=project), completeness)
        if _is_settled(state) or time.monotonic() > deadline:
            return {"completeness": completeness, "run": state, "cost": cost_of(client, run, project=project)}
        time.sleep(INTERVAL_S)


def cost_of(client: Client, run: str, *, project: str | None) -> list[Json]:
    """What observing costs, as the run itself said last: `metric`, `step` and `share` of step time; may be none."""
    listed: Sequence[Mapping[str, Any]] = client.get(f"/runs/{quoted(run)}/metrics", project=project)["items"]
    told = [metric for metric in listed if metric["name"] == COST or metric["name"].startswith(f"{COST}.")]
    return [{"metric": one["name"], "step": one["last_step"], "share": one["last_value"]} for one in told]


def state_of(run: Mapping[str, Any], completeness: Mapping[str, Any]) -> Json:
    """How a run stands: its status, when it ended or fell silent, and of whom the last word is not known.

    Args:
        run: the answer of `GET /runs/{run}`.
        completeness: the answer of `GET /runs/{run}/completeness`.

    Returns:
        `open`: the processes whose end has not arrived; `missing_ranks`: the ranks of which nothing has; `gaps`: what
        was not captured, or lost.
    """
    processes: Sequence[Mapping[str, Any]] = run["processes"]
    launches: Sequence[Mapping[str, Any]] = run["launch_list"]
    known = {process["incarnation"]: process for process in processes}
    silent = sorted({int(process["rank"]) for process in processes if process.get("silent_since")})
    return {
        "run_id": run["run_id"],
        "status": run["status"],
        "end": run["end"],
        "silent_since": run.get("silent_since"),
        "silent_ranks": silent,
        "missing_ranks": sorted({rank for launch in launches for rank in launch["missing_ranks"]}),
        "gaps": run["gaps"],
        "open": [
            _open_process(entry, known.get(entry["incarnation"], {}))
            for entry in completeness["processes"]
            if not entry["ended"]
        ],
    }


def is_whole(report: Mapping[str, Any]) -> bool:
    """Whether nothing is known to be missing: no row, and no end of a process that runs no more."""
    processes: Sequence[Mapping[str, Any]] = report["run"]["open"]
    gone = any(process["silent_since"] or process["status"] not in {"", "running"} for process in processes)
    return not _lacks_rows(report["completeness"]) and not gone


def run_lines(report: Mapping[str, Any] | None) -> list[str]:
    """The report for people: a row for each section, what is wrong with which process, the verdict."""
    if report is None:
        return []
    completeness, state = report["completeness"], report["run"]
    sections = [section for section in completeness["sections"] if section["emitted"]]
    processes: Sequence[Mapping[str, Any]] = completeness["processes"]
    return [
        "",
        *table(sections, ("section", "emitted", "stored", "lost", "missing")),
        *_lost_lines(sections),
        *(f"rank {process['rank']}: {fault}" for process in processes for fault in process["faults"]),
        *_launch_lines(completeness["launches"]),
        f"run {state['run_id']}{_verdict(completeness, state)}",
        *_open_lines(state["open"]),
        *_state_lines(state),
        *_cost_lines(report.get("cost", ())),
    ]


def _cost_lines(costs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What observing costs, a line for each model."""
    return [
        f"observing {cost['metric'].removeprefix(COST).lstrip('.') or 'the model'} costs {cost['share']:.2%} "
        f"of step time, measured up to step {cost['step']}"
        for cost in costs
    ]


def _lost_lines(sections: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why rows were lost, a line for each section that lost some."""
    lossy = [section for section in sections if section["lost_by_cause"]]
    return [
        f"  lost {section['section']}: {', '.join(f'{rows} {cause}' for cause, rows in causes.items())}"
        for section in lossy
        if (causes := section["lost_by_cause"])
    ]


def _launch_lines(launches: Sequence[Mapping[str, Any]]) -> list[str]:
    """How each attempt stands, where there are several."""
    if len(launches) < 2:
        return []
    return [
        f"  attempt {launch['attempt']} (launch {launch['launch_id'][:8]}): {launch['state'].replace('_', ' ')}, "
        f"{sum(section['emitted'] for section in launch['sections'])} rows emitted, "
        f"{sum(section['lost'] for section in launch['sections'])} lost"
        for launch in launches[-LAUNCHES_TOLD:]
    ]


def _is_settled(state: Mapping[str, Any]) -> bool:
    waited_for = [process for process in state["open"] if not process["silent_since"]]
    return not waited_for and not state["missing_ranks"]


def _open_process(entry: Mapping[str, Any], process: Mapping[str, Any]) -> Json:
    return {
        "rank": entry["rank"],
        "incarnation": entry["incarnation"],
        "status": process.get("status", ""),
        "silent_since": process.get("silent_since") or entry.get("silent_since"),
    }


def _lacks_rows(completeness: Mapping[str, Any]) -> bool:
    # The answer's `complete` is false of a run that is not over, too.
    return any(process["faults"] for process in completeness["processes"])


def _verdict(completeness: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    if _lacks_rows(completeness):
        return ": rows are missing"
    absent = f"nothing arrived of rank {_listed(state['missing_ranks'])}" if state["missing_ranks"] else ""
    if state["open"]:
        return ": so far every row that arrived is stored" + (f"; {absent}" if absent else "")
    if absent:
        return f": every row that arrived is stored; {absent}"
    return " is complete: every emitted row is stored or declared lost"


def _open_lines(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        # The end tells processes apart; the beginning is a clock, the same for a minute.
        f"  process {process['incarnation'][-8:]} (rank {process['rank']}) has not said its last word: "
        "up to its last second may be missing"
        for process in processes[:PROCESSES_TOLD]
    ]
    rest = len(processes) - len(lines)
    return [*lines, f"  nor have {rest} more processes"] if rest else lines


def _state_lines(state: Mapping[str, Any]) -> list[str]:
    if state["status"] != "interrupted":
        return []
    if not state["silent_since"]:
        return [f"run {state['run_id']} was interrupted at {state['end']}"]
    ranks = _listed(state["silent_ranks"])
    return [
        f"run {state['run_id']} was interrupted: nothing was heard of rank {ranks} since {state['silent_since']}",
        "  (what a process had not put into its spool when it was ended is lost)",
    ]


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
