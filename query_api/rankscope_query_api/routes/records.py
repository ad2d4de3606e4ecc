"""Rows of the tables as JSON objects, alike on every route that shows them."""

from collections.abc import Mapping, Sequence

import orjson

from rankscope_proto.columns import TENSOR_STATS
from rankscope_proto.names import (
    SPAN_FLAGS,
    TENSOR_FLAGS,
    Capture,
    Phase,
    RedactionState,
    Role,
    Severity,
    SpanKind,
    SpanStatus,
)
from rankscope_query_api.answers import Json, moment
from rankscope_query_api.living import RunningSpan
from rankscope_query_api.summaries import RUNNING, summary_json
from rankscope_query_api.values import Record

STATISTICS = tuple(
    field.name
    for field in TENSOR_STATS.fields
    if field.optional is not None and field.name not in {"layer_index", "step", "microbatch"}
)
"""Numbers about a tensor that a row may lack."""


def span_hex(span_id: int) -> str:
    """A span id as 16 hex digits."""
    return f"{span_id:016x}"


def trace_hex(hi: int, lo: int) -> str:
    """A trace id as 32 hex digits."""
    return f"{hi:016x}{lo:016x}"


def flag_names(flags: int, bits: Mapping[str, int]) -> list[str]:
    """The names of the bits that are set."""
    return [name for name, bit in bits.items() if flags & bit]


def tensor_json(row: Record) -> dict[str, Json]:
    """A row of `tensor_stats`; a statistic that it lacks is not there."""
    shown: dict[str, Json] = {
        "launch_id": row["launch"],
        "rank": row["rank"],
        "step": row["step"],
        "microstep": row["microstep"],
        "phase": Phase.of(row["phase"]),
        "role": Role.of(row["role"]),
        "name": row["name"],
        "module": row["module"],
        "layer_index": row["layer_index"],
        "layer_type": row["layer_type"],
        "dtype": row["dtype"],
        "shape": row["shape"],
        "placement": row["placement"],
        "numel_local": row["numel_local"],
        "numel_global": row["numel_global"],
        "flags": flag_names(row["flags"], TENSOR_FLAGS),
        **moment("time", row["time"]),
    }
    shown |= {name: row[name] for name in STATISTICS if row[name] is not None}
    if row["fingerprint"] is not None:
        shown["fingerprint"] = span_hex(row["fingerprint"])
    if row["log2_hist"]:
        shown["log2_hist"] = row["log2_hist"]
    return shown


def capture_json(row: Record, *, is_whole: bool) -> dict[str, Json]:
    """A row of `captures` without its bytes.

    Args:
        row: The row.
        is_whole: Whether the store has every chunk of its content.
    """
    return {
        "launch_id": row["launch"],
        "rank": row["rank"],
        "step": row["step"],
        "microstep": row["microstep"],
        "phase": Phase.of(row["phase"]),
        "role": Role.of(row["role"]),
        "name": row["name"],
        "module": row["module"],
        "dtype": row["dtype"],
        "shape": row["shape"],
        "full_shape": row["full_shape"],
        "part": row["part"],
        "part_of": _attributes(row["part_of"]),
        "digest": trace_hex(row["digest_hi"], row["digest_lo"]),
        "bytes": row["bytes"],
        "is_whole": is_whole,
        "cause": row["cause"],
        **moment("time", row["time"]),
    }


def trace_json(trace: Record) -> dict[str, Json]:
    """A trace as a row of a list, as `TraceReader.traces` answers it."""
    return {
        "run_id": trace["run_id"],
        **summary_json(trace, trace_hex(trace["trace_hi"], trace["trace_lo"])),
    }


def span_json(row: Record) -> dict[str, Json]:
    """A row of `spans`, with payload previews as the text they are."""
    links: Sequence[Json] = [
        {"trace_id": trace_hex(hi, lo), "span_id": span_hex(span) if span else None}
        for hi, lo, span in zip(row["link_trace_hi"], row["link_trace_lo"], row["link_span_id"], strict=True)
    ]
    return {
        "launch_id": row["launch"],
        "rank": row["rank"],
        "step": row["step"],
        "microstep": row["microstep"],
        "name": row["name"],
        "kind": SpanKind.of(row["kind"]),
        "status": SpanStatus.of(row["status"]),
        "phase": Phase.of(row["phase"]),
        "path": row["path"],
        **moment("start", row["start"]),
        "duration_ns": row["duration"],
        "trace_id": trace_hex(row["trace_hi"], row["trace_lo"]),
        "span_id": span_hex(row["span_id"]),
        "parent_span_id": span_hex(row["parent_span_id"]) if row["parent_span_id"] else None,
        "thread_id": row["thread_id"] or trace_hex(row["trace_hi"], row["trace_lo"]),
        "rollout_id": row["rollout_id"],
        "error_type": row["error_type"],
        "error_preview": row["error_preview"],
        "inputs": row["inputs"],
        "outputs": row["outputs"],
        "attributes": {**row["attributes"], **row["numbers"]},
        "metrics": row["metrics"],
        "links": links,
        "capture": Capture.of(row["capture"]),
        "redaction_state": RedactionState.of(row["redaction_state"]),
        "flags": flag_names(row["flags"], SPAN_FLAGS),
    }


def event_json(row: Record) -> dict[str, Json]:
    """Something that happened at one moment."""
    return {
        "launch_id": row["launch"],
        "rank": row["rank"],
        "node": row["node"],
        "step": row["step"],
        "kind": row["kind"],
        "name": row["name"],
        "severity": Severity.of(row["severity"]),
        "payload": row["payload"],
        **moment("time", row["time"]),
    }


def running_span_json(span: RunningSpan) -> dict[str, Json]:
    """An open span as `span_json` shows a finished one; what it has not said yet is empty, its duration null."""
    return {
        "launch_id": span.launch,
        "rank": span.rank,
        "step": span.step,
        "microstep": 0,
        "name": span.name,
        "kind": SpanKind.of(span.kind),
        "status": RUNNING,
        "phase": "",
        "path": "",
        **moment("start", span.start_ns),
        "duration_ns": None,
        "trace_id": trace_hex(*span.trace),
        "span_id": span_hex(span.span_id),
        "parent_span_id": span_hex(span.parent_span_id) if span.parent_span_id else None,
        "thread_id": trace_hex(*span.trace),
        "rollout_id": "",
        "error_type": "",
        "error_preview": "",
        "inputs": "",
        "outputs": "",
        "attributes": {},
        "metrics": {},
        "links": [],
        "capture": "",
        "redaction_state": "",
        "flags": [],
        "thread": span.thread,
        **moment("heartbeat", span.heartbeat_ns),
    }


def span_event_json(row: Record) -> dict[str, Json]:
    """An event of a span; attributes that are no JSON object are shown as the text they are."""
    return {
        "name": row["name"],
        "attributes": _attributes(row["payload"]),
        "severity": Severity.of(row["severity"]),
        **moment("time", row["time"]),
    }


def _attributes(payload: str) -> Json:
    try:
        return orjson.loads(payload) if payload else {}
    except orjson.JSONDecodeError:
        return payload


def open_spans_json(row: Record) -> dict[str, Json]:
    """What one thread had open at its process' last heartbeat, outermost first; an empty stack: it lives, and idles."""
    return {
        "launch_id": row["launch"],
        "incarnation": row["incarnation_hex"],
        "rank": row["rank"],
        "node": row["node"],
        "thread": row["thread"],
        "step": row["step"],
        "stack": _stack(row),
        **moment("heartbeat", row["heartbeat"]),
    }


def _stack(row: Record) -> Sequence[Json]:
    # Heartbeats of before schema 3 do not say in which traces their spans are, nor of what kind.
    count = len(row["stack_span_id"])
    traces = zip(row["stack_trace_hi"], row["stack_trace_lo"], strict=True)
    ids = [trace_hex(hi, lo) if hi or lo else None for hi, lo in traces] or [None] * count
    kinds = [SpanKind.of(kind) for kind in row["stack_kind"]] or [""] * count
    columns = (row["stack_name"], kinds, ids, row["stack_span_id"], row["stack_start"])
    return [
        {"name": name, "kind": kind, "trace_id": trace, "span_id": span_hex(span), **moment("start", start)}
        for name, kind, trace, span, start in zip(*columns, strict=True)
    ]


def gap_json(row: Record) -> dict[str, Json]:
    """A stated absence, summed over the rows that say the same of some ranks."""
    return {
        "class": row["class"],
        "cause": row["cause"],
        "data_kind": row["data_kind"],
        "ranks": row["ranks"],
        "count": row["rows"],
        "step_from": row["first_step"],
        "step_to": row["last_step"],
        "step_stride": row["step_stride"],
        "details": row["details"],
        **moment("start", row["started_ns"]),
        **moment("end", row["ended_ns"]),
    }
