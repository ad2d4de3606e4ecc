"""What is open now, as heartbeats say it: one row a trace, its open spans by their starts."""

from collections.abc import Sequence

from rankscope._block import Block, Column
from rankscope._checked import KINDS
from rankscope.front.book import Kept
from rankscope.front.halves import Half

MAX_TRACES = 256
"""Traces told of a run: those heard of last."""

MAX_STACK = 64
"""Spans told of a trace: the first begun."""


def heartbeat(spans: Sequence[Kept], *, at_ns: int) -> Block:
    """The open spans of a run as a block of `open_spans`; one row without any where nothing is open.

    Args:
        spans: The open spans, those heard of last first.
        at_ns: When they are open, ns since the epoch.
    """
    stacks: dict[bytes, list[tuple[Kept, Half]]] = {}
    for kept in spans:
        stacks.setdefault(kept.trace, []).append((kept, Half.of_text(kept.body)))
    rows = [_outermost_first(stack)[:MAX_STACK] for stack in list(stacks.values())[:MAX_TRACES]] or [[]]
    flat = [one for stack in rows for one in stack]
    columns: dict[str, Column] = {
        "heartbeat": [at_ns] * len(rows),
        "thread": [_thread(stack) for stack in rows],
        "stack_span_id": [int.from_bytes(kept.span, "big") for kept, _ in flat],
        "stack_name": [str(half.value("name") or "") for _, half in flat],
        "stack_start": [half.started_ns for _, half in flat],
        "stack_trace_hi": [int.from_bytes(kept.trace[:8], "big") for kept, _ in flat],
        "stack_trace_lo": [int.from_bytes(kept.trace[8:], "big") for kept, _ in flat],
        "stack_kind": [KINDS.get(str(half.value("kind") or "custom"), 0) for _, half in flat],
        "stack_n": [len(stack) for stack in rows],
    }
    return Block("open_spans", len(rows), columns)


def _thread(stack: Sequence[tuple[Kept, Half]]) -> str:
    return str((stack and stack[0][1].value("thread_id")) or "HTTP ingest")


def _outermost_first(stack: Sequence[tuple[Kept, Half]]) -> list[tuple[Kept, Half]]:
    """By start, and an ancestor before what is below it where both began at once."""
    parents = {kept.span.hex(): str(half.value("parent_span_id") or "") for kept, half in stack}

    def depth(span: str) -> int:
        for found in range(MAX_STACK):
            if span not in parents:
                return found
            span = parents[span]
        return MAX_STACK

    return sorted(stack, key=lambda one: (one[1].started_ns, depth(one[0].span.hex())))
