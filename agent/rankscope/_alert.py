"""What a person or a program says of a run that somebody should see."""

import json
from typing import TYPE_CHECKING

from rankscope._block import Block, Column
from rankscope._bounds import NAME, cut
from rankscope._checked import severity_code
from rankscope._labels import MARGIN, text_of
from rankscope_proto.names import EventKind

if TYPE_CHECKING:
    from rankscope._recording import Recording

MOST_TEXT = 16_384
"""Bytes of an alert's text."""


def alert_block(recording: "Recording", title: str, *, text: str, level: str) -> Block:
    """The event of an alert, masked, in the step and the span that it is said in.

    Args:
        recording: Whose step it is said in, and whose redactor masks it.
        title: A line.
        text: More.
        level: A `Severity`, by name, in whatever case.

    Raises:
        TypeError: `level` is no text.
        ValueError: `level` is none.
    """
    severity = severity_code(level)
    redacted = recording.tracing.redactor.text
    # Masked before it is cut (the title where its block enters a batch): no part of a secret is left at the edge.
    kept = cut(redacted(text_of(text, MOST_TEXT + MARGIN)), MOST_TEXT)
    columns: dict[str, Column] = {
        "time": (recording.clock.wall_ns(),),
        "kind": (EventKind.ALERT.value,),
        "name": (redacted(text_of(title, NAME + MARGIN)),),
        "severity": (severity,),
        "payload": (json.dumps({"text": kept}),),
    }
    step, span = recording.current_step(), recording.current.get()
    if step is not None:
        columns["step"] = (step.index,)
    if span is not None:
        columns |= {"span_id": (span.id,), "trace_hi": (span.trace_hi,), "trace_lo": (span.trace_lo,)}
    return Block("events", 1, columns)
