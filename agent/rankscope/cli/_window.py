"""Draws what is around one span of a trace, for `rankscope trace --trace ID --around SPAN`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.cli._one_trace import span_lines
from rankscope.cli._output import plural


def window_lines(window: Mapping[str, Any]) -> list[str]:
    """A span below what it is part of, among its siblings, above its children; it is marked with an arrow."""
    ancestors: Sequence[Mapping[str, Any]] = window["ancestors"]
    siblings: Sequence[Mapping[str, Any]] = window["items"]
    at, level = int(window["at"]), len(ancestors)
    rows = [{**row, "depth": depth} for depth, row in enumerate(ancestors)]
    for place, row in enumerate(siblings):
        name = f"→ {row['name']}" if place == at else row["name"]
        rows.append({**_bare(row), "name": name, "depth": level})
        if place == at:
            rows += [{**_bare(child), "depth": level + 1} for child in window["children"]]
    head = f"run {window['run_id']}  trace {window['trace_id']}  span {window['span_id']}"
    return [head, _counts(window), "", *span_lines(rows)]


def _bare(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without what happened in it: the trace's own page shows that."""
    return {name: value for name, value in row.items() if name not in {"events", "links", "has_more_events"}}


def _counts(window: Mapping[str, Any]) -> str:
    shown = f"{len(window['items'])} of {plural(int(window['total']), 'sibling')}"
    below = f"{len(window['children'])} of {window['children_total']} children"
    above = "" if window["is_whole_above"] else ", only the nearest ancestors"
    return f"{shown}, {below}{above}"
