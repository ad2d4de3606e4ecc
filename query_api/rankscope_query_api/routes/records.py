"""Rows of the tables as JSON objects, alike on every route that shows them."""

from collections.abc import Mapping, Sequence

from rankscope_proto.columns import TENSOR_STATS
from rankscope_proto.names import SPAN_FLAGS, TENSOR_FLAGS, Phase, Role, Severity, SpanKind, SpanStatus
from rankscope_query_api.answers import Json, moment
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
        "thread_id": row["thread_id"],
        "rollout_id": row["rollout_id"],
        "error_type": row["error_type"],
        "error_preview": row["error_preview"],
        "inputs": row["inputs"],
        "outputs": row["outputs"],
        "attributes": {**row["attributes"], **row["numbers"]},
        "metrics": row["metrics"],
        "links": links,
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


def open_spans_json(row: Record) -> dict[str, Json]:
    """What one thread had open at its process' last heartbeat, outermost first; an empty stack: it lives, and idles."""
    stack = zip(row["stack_span_id"], row["stack_name"], row["stack_start"], strict=True)
    return {
        "launch_id": row["launch"],
        "incarnation": row["incarnation_hex"],
        "rank": row["rank"],
        "node": row["node"],
        "thread": row["thread"],
        "step": row["step"],
        "stack": [{"name": name, "span_id": span_hex(span), **moment("start", start)} for span, name, start in stack],
        **moment("heartbeat", row["heartbeat"]),
    }


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
