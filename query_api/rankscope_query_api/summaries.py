"""What the list and the detail of traces say of one trace: the same columns, computed alike, shown alike.

The columns are aggregates over a source that has each span of a trace once (`SPAN_COLUMNS`), so that a span which is
stored twice counts once; spans that a living process has open are not in the tables and are added by whoever reads.
"""

from rankscope_proto.names import SPAN_FLAGS, Capture, SpanKind, SpanStatus
from rankscope_proto.sections_spans import SPAN_END
from rankscope_query_api.answers import Json, moment
from rankscope_query_api.values import Record

RUNNING = "running"
"""The status of a trace that a living process has a span open of; no stored span has it."""

STATUSES = (*(status.value for status in SpanStatus), RUNNING)
"""What the status of a trace may be."""

INPUT_TOKENS = ("gen_ai.usage.input_tokens",)
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens",)
COST_USD = ("gen_ai.usage.cost_usd", "cost_usd")
"""Names under which spans keep these, as metrics or as numeric attributes; of one span the first that it has."""

FIRST_COPY = f"start, parent_span_id, status = {SpanStatus.INTERRUPTED.code}, incarnation, seq, idx"
"""Order among the rows of one span id; the first is meant: an interrupted copy never hides the finished span."""

SPAN_COLUMNS = """span_id, parent_span_id, name, kind, status, start, duration, step, rank, thread_id, rollout_id,
    error_type, flags, capture, numbers, metrics"""
"""Columns of the source that `SUMMARY` is computed over."""


def number_of(names: tuple[str, ...]) -> str:
    """SQL of the first of these that a span has, NULL where it has none or one that is no finite number."""
    tries = [
        part
        for name in names
        for table in ("metrics", "numbers")
        for part in (f"mapContains({table}, '{name}')", f"{table}['{name}']")
    ]
    found = f"multiIf({', '.join(tries)}, NULL)"
    return f"if(isFinite({found}), {found}, NULL)"


_AS_ROOT = "(parent_span_id != 0, start, span_id)"
_REWARDS = "mapFilter((name, value) -> name = 'reward' OR startsWith(name, 'reward.'), metrics)"

SUMMARY = f"""
    count() AS spans,
    countIf(parent_span_id = 0) AS roots,
    countIf(status = {SpanStatus.ERROR.code}) AS errors,
    countIf(status = {SpanStatus.CANCELLED.code}) AS cancelled,
    countIf(status = {SpanStatus.INTERRUPTED.code}) AS interrupted,
    argMin(name, {_AS_ROOT}) AS root_name,
    argMin(kind, {_AS_ROOT}) AS root_kind,
    sumMap(map(kind, toUInt64(1))) AS kinds,
    argMinIf(thread_id, {_AS_ROOT}, thread_id != '') AS thread,
    argMinIf(rollout_id, {_AS_ROOT}, rollout_id != '') AS rollout,
    arraySlice(arraySort(groupUniqArrayIf(error_type, error_type != '')), 1, 8) AS error_types,
    arraySort(groupUniqArray(rank)) AS ranks,
    min(step) AS first_step,
    max(step) AS last_step,
    min(start) AS started_ns,
    max({SPAN_END}) - min(start) AS duration_ns,
    max(bitAnd(flags, {SPAN_FLAGS["in_step_trace"]}) != 0) AS is_step,
    max(capture = {Capture.PREVIEW.code}) AS has_previews,
    sum({number_of(INPUT_TOKENS)}) AS input_tokens,
    sum({number_of(OUTPUT_TOKENS)}) AS output_tokens,
    sum({number_of(COST_USD)}) AS cost_usd,
    maxMap(mapApply((name, value) -> (name, (start, span_id, value)), {_REWARDS})) AS rewards"""
"""Aggregates over all spans of one trace; the columns of a summary but `running`, how many are open now."""


NOTHING_STORED: Record = {
    **dict.fromkeys(("spans", "roots", "errors", "cancelled", "interrupted", "started_ns", "duration_ns"), 0),
    "root_name": "",
    "root_kind": 0,
    "thread": "",
    "rollout": "",
    "is_step": False,
    "has_previews": False,
    "kinds": {},
    "rewards": {},
    "error_types": [],
    "ranks": [],
    **dict.fromkeys(("first_step", "last_step", "input_tokens", "output_tokens", "cost_usd")),
}
"""What `SUMMARY` would say of a trace that only has open spans."""


def trace_status(record: Record) -> str:
    """The status of a trace: error before running before cancelled; interrupted only where every span is; else ok."""
    if record["errors"]:
        return SpanStatus.ERROR.value
    if record["running"]:
        return RUNNING
    if record["cancelled"]:
        return SpanStatus.CANCELLED.value
    if record["spans"] and record["interrupted"] == record["spans"]:
        return SpanStatus.INTERRUPTED.value
    return SpanStatus.OK.value


def summary_json(record: Record, trace_id: str) -> dict[str, Json]:
    """A trace as JSON, without its run.

    Args:
        record: The columns of `SUMMARY`, and `running`.
        trace_id: 32 hex digits; the thread of a trace that names none.
    """
    return {
        "trace_id": trace_id,
        "name": record["root_name"],
        "kind": SpanKind.of(record["root_kind"]),
        "status": trace_status(record),
        "is_step": bool(record["is_step"]),
        "first_step": record["first_step"],
        "last_step": record["last_step"],
        "ranks": record["ranks"],
        "thread_id": record["thread"] or trace_id,
        "rollout_id": record["rollout"],
        "spans": record["spans"],
        "roots": record["roots"],
        "running": record["running"],
        "errors": record["errors"],
        "error_types": record["error_types"],
        "kinds": {SpanKind.of(code): count for code, count in sorted(record["kinds"].items())},
        "input_tokens": whole(record["input_tokens"]),
        "output_tokens": whole(record["output_tokens"]),
        "cost_usd": record["cost_usd"],
        "rewards": {name: value for name, (_, _, value) in sorted(record["rewards"].items())},
        "has_previews": bool(record["has_previews"]),
        **moment("start", record["started_ns"]),
        "duration_ns": record["duration_ns"],
    }


def whole(tokens: float | None) -> int | float | None:
    """A number of tokens without the decimals that it has only for travelling as a float."""
    return int(tokens) if tokens is not None and tokens.is_integer() else tokens
