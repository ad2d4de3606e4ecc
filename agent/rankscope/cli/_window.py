"""Draws what is around one span of a trace, for `rankscope trace --trace ID --around SPAN`."""

from collections.abc import Mapping
from typing import Any

from rankscope.cli._one_trace import span_lines
from rankscope.cli._output import plural
from rankscope.client import window_rows


def window_lines(window: Mapping[str, Any]) -> list[str]:
    """A span below what it is part of, among its siblings, above its children; it is marked with an arrow."""
    rows = [_bare(row) for row in window_rows(window)]
    head = f"run {window['run_id']}  trace {window['trace_id']}  span {window['span_id']}"
    return [head, _counts(window), "", *span_lines(rows)]


def _bare(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without what happened in it: the trace's own page shows that."""
    bare = {name: value for name, value in row.items() if name not in {"events", "links", "has_more_events"}}
    return {**bare, "name": f"→ {row['name']}"} if row["is_meant"] else bare


def _counts(window: Mapping[str, Any]) -> str:
    shown = f"{len(window['items'])} of {plural(int(window['total']), 'sibling')}"
    below = f"{len(window['children'])} of {window['children_total']} children"
    above = "" if window["is_whole_above"] else ", only the nearest ancestors"
    return f"{shown}, {below}{above}"
