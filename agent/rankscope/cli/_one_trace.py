"""Draws one trace by its id, for `rankscope trace --trace`: its tree with events and links."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from rankscope.cli._output import duration, plural
from rankscope.cli._table import cell
from rankscope.cli._tree import branches, name_cell
from rankscope.client import printable

_END = ("└─ ", "   ")
_FORK = ("├─ ", "│  ")


def trace_lines(trace: Mapping[str, Any]) -> list[str]:
    """A trace's totals, then its spans as a tree, each with what happened in it and what it links to."""
    kinds: Mapping[str, int] = trace["kinds"]
    head = [
        f"run {trace['run_id']}  trace {trace['trace_id']}",
        f"{printable(trace['name'])}  {trace['status']}  {duration(trace['duration_ns'])}  {_counts(trace)}",
    ]
    if kinds:
        head.append("kinds: " + ", ".join(f"{kind} {count}" for kind, count in kinds.items()))
    if usage := _usage(trace):
        head.append("usage: " + usage)
    return [*head, "", *span_lines(trace["items"])]


def span_lines(spans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Spans as a tree with their durations and, where they failed, their errors; events and links below each."""
    leads = branches([int(span["depth"]) for span in spans])
    return [
        line for span, lead in zip(spans, leads, strict=True) for line in (_span_line(span, lead), *_below(span, lead))
    ]


def _counts(trace: Mapping[str, Any]) -> str:
    words = [plural(int(trace["spans"]), "span")]
    words += [f"{trace['running']} running"] if trace["running"] else []
    words += [plural(int(trace["errors"]), "error")] if trace["errors"] else []
    return ", ".join(words)


def _usage(trace: Mapping[str, Any]) -> str:
    words = [
        f"{trace[f'{way}_tokens']} {way} tokens" for way in ("input", "output") if trace[f"{way}_tokens"] is not None
    ]
    return ", ".join(words + ([f"{trace['cost_usd']:.4g} USD"] if trace["cost_usd"] is not None else []))


def _span_line(span: Mapping[str, Any], lead: str) -> str:
    status = "" if span.get("status") in {None, "", "ok"} else f"  {span['status']}"
    error = f" {printable(span['error_type'])}" if span.get("error_type") else ""
    where = f"  rank {span['rank']}" if "rank" in span and not span["depth"] else ""
    faults = "".join(
        f"  {word}" for name, word in (("orphan", "orphan"), ("cycle_cut", "cycle"), ("late", "late")) if span.get(name)
    )
    return f"{name_cell(lead, span)}{duration(_lasted(span)):>10}{where}{status}{error}{faults}"


def _lasted(span: Mapping[str, Any]) -> object:
    """How long a span took; of one that runs, how long it did when it was last heard of."""
    if span["duration_ns"] is None and span.get("heartbeat_ns"):
        return int(span["heartbeat_ns"]) - int(span["start_ns"])
    return span["duration_ns"]


def _below(span: Mapping[str, Any], lead: str) -> Iterator[str]:
    """A line for each event and each link of a span."""
    margin = lead.replace(_FORK[0], _FORK[1]).replace(_END[0], _END[1]) + ("│  " if span.get("child_count") else "   ")
    events: Sequence[Mapping[str, Any]] = span.get("events") or ()
    for event in events:
        at = duration(int(event["time_ns"]) - int(span["start_ns"]))
        yield f"{margin}* {printable(event['name'])}  +{at}{_labels(event['attributes'])}"
    if span.get("has_more_events"):
        yield f"{margin}* more events: the export of the trace has all of them"
    links: Sequence[Mapping[str, Any]] = span.get("links") or ()
    for link in links:
        yield f"{margin}-> trace {link['trace_id']}" + (f"  span {link['span_id']}" if link["span_id"] else "")


def _labels(attributes: object) -> str:
    if not isinstance(attributes, Mapping):
        return f"  {cell(attributes)}" if attributes else ""
    named = cast("Mapping[str, object]", attributes)
    return "".join(f"  {printable(name)}={cell(value)}" for name, value in named.items())
