"""Draws the tree of a step: across ranks, a row for each logical place, or one rank's own spans."""

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.cli._one_trace import span_lines
from rankscope.cli._output import duration, plural
from rankscope.cli._tree import NAME_WIDTH, branches, name_cell, rank_lines
from rankscope.client import printable

GROUPS_DRAWN = 8
"""Groups of a place that are drawn, the slowest; the answer has more."""

REASONS_DRAWN = 10
"""Missing ranks whose reasons are drawn; the answer has those of all that it names."""


def merged_lines(tree: Mapping[str, Any]) -> list[str]:
    """A step across ranks: who is missing and why, the ranks' bars, then a row for each logical place."""
    nodes: Sequence[Mapping[str, Any]] = tree["items"]
    missing: Sequence[Mapping[str, Any]] = tree["missing_ranks"]
    head = f"run {tree['run_id']}  step {tree['step']}  {plural(len(tree['ranks']), 'rank')}"
    return [
        head + (f"  MISSING {', '.join(str(one['rank']) for one in missing)}" if missing else ""),
        *(f"  rank {one['rank']}: {one['reason']}: {printable(one['detail'])}" for one in missing[:REASONS_DRAWN]),
        *([f"  and {more} more: --json has their reasons"] if (more := len(missing) - REASONS_DRAWN) > 0 else []),
        _clock_line(tree["clock"]),
        "",
        *rank_lines(tree["ranks"]),
        "",
        f"{'over ranks':<{NAME_WIDTH}}{'min':>10}{'median':>10}{'max':>10}  slowest",
        *(line for node, lead in zip(nodes, _leads(nodes), strict=True) for line in _node_lines(node, lead)),
    ]


def rank_tree_lines(tree: Mapping[str, Any]) -> list[str]:
    """One rank's own spans of a step."""
    head = f"run {tree['run_id']}  step {tree['step']}  rank {tree['rank']}"
    return [head, _clock_line(tree["clock"]), "", *span_lines(tree["items"])]


def _clock_line(clock: Mapping[str, Any]) -> str:
    if not clock["applied"]:
        return "clocks: not measured; starts are what each process's own clock said"
    unmeasured: Sequence[int] = clock["unmeasured_ranks"]
    but = f", but not those of rank {', '.join(map(str, unmeasured))}" if unmeasured else ""
    return f"clocks: put on the server's, within {duration(clock['error_ns'])}{but}"


def _leads(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return branches([int(row["depth"]) for row in rows])


def _node_lines(node: Mapping[str, Any], lead: str) -> list[str]:
    missing: Sequence[Mapping[str, Any]] = node["missing_ranks"]
    gone = f"  not on rank {', '.join(str(one['rank']) for one in missing)}" if missing else ""
    groups: Sequence[Mapping[str, Any]] = node.get("groups", ())
    under = " " * (len(lead) + 2)
    more = int(node.get("groups_total", 0)) - len(groups[:GROUPS_DRAWN])
    return [
        f"{name_cell(lead, node)}{_spread(node)}{gone}",
        *(f"{under}{_group_name(group)}".ljust(NAME_WIDTH) + _spread(group) for group in groups[:GROUPS_DRAWN]),
        *([f"{under}and {more} more groups, none of them slower"] if more > 0 else []),
    ]


def _group_name(group: Mapping[str, Any]) -> str:
    name = "not said" if group["group"] is None else printable(str(group["group"]))
    return f"= {name} ({plural(int(group['ranks']), 'rank')})"


def _spread(row: Mapping[str, Any]) -> str:
    times = "".join(f"{duration(row[name]):>10}" for name in ("min_ns", "median_ns", "max_ns"))
    slowest = "" if row["slowest_rank"] is None else f"  rank {row['slowest_rank']}"
    charged = int(row["charged_wait_ns"] or 0)
    return times + slowest + (f"  held others up {duration(charged)}" if charged else "")
