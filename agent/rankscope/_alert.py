"""What a person or a program says of a run that somebody should see."""

import json
from typing import TYPE_CHECKING

from rankscope._block import Block, Column
from rankscope._bounds import NAME, cut
from rankscope._labels import text_of
from rankscope_proto.names import EventKind, Severity

if TYPE_CHECKING:
    from rankscope._recording import Recording

TEXT_BYTES = 16_384


def alert_block(recording: "Recording", title: str, *, text: str, level: str) -> Block:
    """The event of an alert, masked, in the step and the span that it is said in.

    Args:
        recording: Whose step it is said in, and whose redactor masks it.
        title: A line.
        text: More.
        level: A `Severity`, by name.

    Raises:
        ValueError: `level` is none.
    """
    severities = {severity.value: severity.code for severity in Severity}
    if level not in severities:
        raise ValueError(f"level is {level!r}: it is one of {', '.join(severities)}")
    redacted = recording.tracing.redactor.text
    columns: dict[str, Column] = {
        "time": (recording.clock.wall_ns(),),
        "kind": (EventKind.ALERT.value,),
        "name": (redacted(text_of(title, NAME + 1)),),
        "severity": (severities[level],),
        "payload": (json.dumps({"text": redacted(cut(text_of(text, TEXT_BYTES + 1), TEXT_BYTES))}),),
    }
    step, span = recording.current_step(), recording.current.get()
    if step is not None:
        columns["step"] = (step.index,)
    if span is not None:
        columns |= {"span_id": (span.id,), "trace_hi": (span.trace_hi,), "trace_lo": (span.trace_lo,)}
    return Block("events", 1, columns)
