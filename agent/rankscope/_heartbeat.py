"""What is open right now: one row a thread, so that a hang shows where every rank stands."""

import threading
from typing import TYPE_CHECKING

from rankscope._block import Block, Column

if TYPE_CHECKING:
    from rankscope._recording import Recording
    from rankscope._span import Span

IDLE = "main"
"""The thread of the row that has no spans."""

MAX_STACK = 64
"""Innermost spans kept of a stack: more is a runaway recursion, and its end is what is asked for."""


def open_span_block(recording: "Recording") -> Block:
    """The open spans of every thread, outermost first; one row without any where nothing is open.

    That row says that the process lives: one that is silent for long reads as interrupted. For the sealing thread.
    """
    stacks = _stacks(recording)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    if not stacks:
        stacks[0], names[0] = [], IDLE
    flat = [span for stack in stacks.values() for span in stack]
    masked = recording.masks.text
    columns: dict[str, Column] = {
        "heartbeat": [recording.clock.wall_ns()] * len(stacks),
        "thread": [masked(names.get(ident) or f"thread {ident}") for ident in stacks],
        "stack_span_id": [span.id for span in flat],
        "stack_name": [masked(span.name) for span in flat],
        "stack_start": [recording.clock.wall_at(span.start_mono_ns) for span in flat],
        "stack_trace_hi": [span.trace_hi for span in flat],
        "stack_trace_lo": [span.trace_lo for span in flat],
        "stack_kind": [span.kind for span in flat],
        "stack_n": [len(stack) for stack in stacks.values()],
    }
    step = recording.current_step()
    if step is not None:
        columns["step"] = [step.step] * len(stacks)
    return Block("open_spans", len(stacks), columns)


def _stacks(recording: "Recording") -> "dict[int, list[Span]]":
    # A copy first: training opens and ends spans meanwhile. A span is entered before it has a start.
    spans = [span for span in tuple(recording.open_spans.copy().values()) if span.start_mono_ns]
    stacks: dict[int, list[Span]] = {}
    for span in sorted(spans, key=lambda span: (span.start_mono_ns, span.depth)):
        stacks.setdefault(span.thread, []).append(span)
    return {ident: stack[-MAX_STACK:] for ident, stack in stacks.items()}
