"""What few spans have, in one object beside the span: most spans never make it, and pay one store for it."""

from typing import TYPE_CHECKING

from rankscope._dropped import Dropped
from rankscope_proto.names import SPAN_FLAGS

if TYPE_CHECKING:
    from rankscope._links import Link
    from rankscope.privacy import Preview

_TRUNCATED = SPAN_FLAGS["truncated"]

UNSET = object()
"""No output yet: None is an output."""


class Details:
    """What few spans have.

    Attributes:
        links: Related spans.
        error_type: Class of the exception that ended it.
        error_preview: Its message, redacted; empty where nothing is captured.
        inputs: Redacted preview (JSON) of the inputs.
        outputs: Redacted preview (JSON) of the output.
        output: The output as it was given last, until the span ends.
        is_captured: Whether inputs, output and the exception's message are kept.
        is_masked: Whether anything was masked in the thread of the program.
        flags: Bits of `spans.flags` that are this span's own.
        dropped: What was cut or left out, None where nothing was.
        attribute_bytes: Bytes of the attributes, once more of them came; 0 before.
        metric_bytes: The same of the metrics.
        text_bytes: Memory of its long text, which the ring has a budget for.
    """

    __slots__ = (
        "attribute_bytes",
        "dropped",
        "error_preview",
        "error_type",
        "flags",
        "inputs",
        "is_captured",
        "is_masked",
        "links",
        "metric_bytes",
        "output",
        "outputs",
        "text_bytes",
    )

    def __init__(self) -> None:
        self.links: tuple[Link, ...] = ()
        self.error_type = self.error_preview = self.inputs = self.outputs = ""
        self.output: object = UNSET
        self.is_captured = self.is_masked = False
        self.flags = self.text_bytes = self.attribute_bytes = self.metric_bytes = 0
        self.dropped: Dropped | None = None

    def drop(self, name: str, more: int = 0) -> None:
        """Note that something was cut or left out, and so many more of its field."""
        self.flags |= _TRUNCATED
        dropped = self.dropped
        if dropped is None:
            dropped = self.dropped = Dropped()
        dropped.add(name)
        dropped.add_more(name.partition(".")[0], more)

    def kept(self, preview: "Preview", name: str) -> str:
        """The text of a preview; what it left out is meant to be, and no fault, but it is said."""
        self.is_masked |= preview.is_redacted
        if preview.is_truncated:
            self.drop(name)
        return preview.text
