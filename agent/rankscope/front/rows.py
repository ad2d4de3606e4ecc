"""Whole spans as the columns of their section. Pure.

What a column cannot hold is kept beside it: a step that is no whole number from 0 on is the numeric attribute `step`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from rankscope._block import Block, Column
from rankscope._bounds import LINKS
from rankscope._checked import KINDS, STATUSES
from rankscope.front.halves import Half
from rankscope.front.masking import LINK_TEXTS, METRIC_TEXTS
from rankscope.privacy import REDACTED
from rankscope_proto.columns import SPANS
from rankscope_proto.names import SPAN_FLAGS, Capture, RedactionState, SpanStatus

MAX_DEPTH = 64
"""Ancestors that are looked for: a deeper tree is drawn from its parents' ids."""

_STEP, _STATED_RANK = (1 << (SPANS.field(name).optional or 0) for name in ("step", "stated_rank"))
_PREVIEWS = {"inputs": "input_preview", "outputs": "output_preview", "error_preview": "error_preview"}

Value = str | int | float


@dataclass(frozen=True, slots=True)
class Whole:
    """A span that is written now.

    Attributes:
        trace: Trace id, 16 bytes.
        span: Span id, 8 bytes.
        half: What is known of it.
        path: Names of the known ancestors and its own, escaped, joined by '/'.
        depth: Number of ancestors known.
    """

    trace: bytes
    span: bytes
    half: Half
    path: str
    depth: int


def block_of(spans: Sequence[Whole]) -> Block:
    """At least one span as one block."""
    halves = [span.half for span in spans]
    times = [half.times for half in halves]
    columns: dict[str, Column] = {
        "span_id": [int.from_bytes(span.span, "big") for span in spans],
        "trace_hi": [int.from_bytes(span.trace[:8], "big") for span in spans],
        "trace_lo": [int.from_bytes(span.trace[8:], "big") for span in spans],
        "parent_span_id": [int(str(half.value("parent_span_id") or "0"), 16) for half in halves],
        "name": [_text(half, "name") for half in halves],
        "kind": [KINDS[_text(half, "kind") or "custom"] for half in halves],
        "status": [STATUSES.get(half.status, SpanStatus.OK.code) for half in halves],
        "start": [start for start, _ in times],
        "duration": [duration for _, duration in times],
        "depth": [span.depth for span in spans],
        "path": [span.path for span in spans],
        "thread_id": [_thread(span) for span in spans],
        "rollout_id": [_text(half, "rollout_id") for half in halves],
        "error_type": [_text(half, "error_type") for half in halves],
        **{column: [_text(half, name) for half in halves] for column, name in _PREVIEWS.items()},
        "capture": [_capture(half) for half in halves],
        "redaction_state": [_redaction(half) for half in halves],
        "flags": [_flags(half) for half in halves],
        **_optional(halves),
        **_maps(halves),
        **_links(halves),
    }
    return Block("spans", len(spans), columns)


def _text(half: Half, name: str) -> str:
    return str(half.value(name) or "")


def _thread(span: Whole) -> str:
    """Clients name the trace where they mean no session; here that is an empty text."""
    found = _text(span.half, "thread_id")
    return "" if found == span.trace.hex() else found


def _capture(half: Half) -> int:
    return (Capture.PREVIEW if half.value("content_policy") == "preview" else Capture.OFF).code


def _redaction(half: Half) -> int:
    previews = [text for name in _PREVIEWS.values() if (text := _text(half, name))]
    has_mask = any(REDACTED in text for text in previews)  # a client that masks by itself leaves the same
    if half.masked or has_mask or half.value("redaction_state") == "redacted":
        return RedactionState.REDACTED.code
    return RedactionState.NOTHING_TO_REDACT.code if previews else 0


def _flags(half: Half) -> int:
    cut = half.truncated or half.value("redaction_state") == "truncated"
    links = cast("Sequence[object]", half.value("links") or ())
    flags = SPAN_FLAGS["truncated"] if cut or len(links) > LINKS else 0
    return flags | (SPAN_FLAGS["interrupted"] if half.status == "interrupted" else 0)


def _step(half: Half) -> int | None:
    """The step, where its column can hold it."""
    found = half.value("step")
    return found if isinstance(found, int) and found >= 0 else None


def _optional(halves: Sequence[Half]) -> dict[str, Column]:
    """Columns that a row may lack, and which it has."""
    steps = [_step(half) for half in halves]
    ranks = [cast("int | None", half.value("rank")) for half in halves]
    present = [
        (_STEP if step is not None else 0) | (_STATED_RANK if rank is not None else 0)
        for step, rank in zip(steps, ranks, strict=True)
    ]
    return {"step": [step or 0 for step in steps], "stated_rank": [rank or 0 for rank in ranks], "present": present}


def _attributes(half: Half) -> dict[str, Value]:
    """All attributes: those stated, and what has no column of its own."""
    found: dict[str, Value] = {}
    for name in ("attributes", METRIC_TEXTS, LINK_TEXTS):
        for key, value in cast("Mapping[str, Value]", half.value(name) or {}).items():
            found.setdefault(key, value)
    step = half.value("step")
    if step is not None and _step(half) is None:
        found["rankscope.step" if "step" in found else "step"] = cast("Value", step)
    return found


def _maps(halves: Sequence[Half]) -> dict[str, Column]:
    attributes = [_attributes(half) for half in halves]
    texts = [{key: value for key, value in row.items() if isinstance(value, str)} for row in attributes]
    numbers = [{key: value for key, value in row.items() if not isinstance(value, str)} for row in attributes]
    metrics = [cast("Mapping[str, Value]", half.value("metrics") or {}) for half in halves]
    return {
        **_map(texts, "attribute_keys", values="attribute_values", count="attribute_n"),
        **_map(numbers, "number_keys", values="number_values", count="number_n"),
        **_map(metrics, "metric_keys", values="metric_values", count="metric_n"),
    }


def _map(rows: Sequence[Mapping[str, Value]], keys: str, *, values: str, count: str) -> dict[str, Column]:
    return {
        keys: [key for row in rows for key in row],
        values: [value for row in rows for value in row.values()],
        count: [len(row) for row in rows],
    }


def _links(halves: Sequence[Half]) -> dict[str, Column]:
    rows = [cast("Sequence[tuple[str, str]]", half.value("links") or ())[:LINKS] for half in halves]
    flat = [link for row in rows for link in row]
    return {
        "link_trace_hi": [int(trace[:16], 16) for trace, _ in flat],
        "link_trace_lo": [int(trace[16:], 16) for trace, _ in flat],
        "link_span_id": [int(span, 16) for _, span in flat],
        "link_n": [len(row) for row in rows],
    }
