"""What a wrapped call leaves behind: little work for training, the rest for who makes rows of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from rankscope.collectives.operations import BARRIER_NUMBERS, Operation

if TYPE_CHECKING:
    from rankscope._span_ref import SpanRef
    from rankscope._step import Step
    from rankscope.collectives.groups import Group, ProcessGroup


class Note:
    """One call of a function of `torch.distributed`.

    Attributes:
        group: The group.
        process_group: torch's, while the call is open.
        operation: The function.
        number: Of the call in its group, as `_get_sequence_number_for_group` counts.
        moved: By how much that number went on; 0 while it is open.
        cseq: Number of the collective; 0: not known yet, or none.
        entry: Monotonic ns when it was called.
        exit: When it was over; 0: not known.
        exit_source: What told that.
        shapes: Shapes of the input.
        dtype: Its element type.
        size: Its bytes.
        is_host: Whether the host does it, so that a call that waits returns when it is over.
        is_async: Whether the caller does not wait.
        is_failed: Whether it raised.
        reduction: How it reduces, as it was given.
        step: The step that was open.
        inside: The span that was open.
        module: What it is for.
        ticket: The beacon's.
        device_ns: How long it took on its device.
    """

    __slots__ = (
        "cseq",
        "device_ns",
        "dtype",
        "entry",
        "exit",
        "exit_source",
        "group",
        "inside",
        "is_async",
        "is_failed",
        "is_host",
        "module",
        "moved",
        "number",
        "operation",
        "process_group",
        "reduction",
        "shapes",
        "size",
        "step",
        "ticket",
    )

    # Positional, as it is made in every call.
    def __init__(self, group: "Group", process_group: "ProcessGroup", operation: Operation, number: int, /) -> None:
        self.group = group
        self.process_group: ProcessGroup | None = process_group
        self.operation = operation
        self.number = number
        self.moved = self.cseq = self.entry = self.exit = self.size = 0
        self.exit_source = self.module = ""
        self.shapes: tuple[Sequence[int], ...] = ()
        self.dtype: Any = None
        self.is_host = self.is_async = self.is_failed = False
        self.reduction: Any = None
        self.step: Step | None = None
        self.inside: SpanRef | None = None
        self.ticket: Any = None
        self.device_ns: int | None = None

    @property
    def numbers(self) -> int:
        """Numbers of collectives that it took, the same on all ranks."""
        operation = self.operation
        if operation.name == "monitored_barrier":
            return BARRIER_NUMBERS
        return self.moved if operation.is_numbered else 0

    def describe(self, value: Any) -> None:
        """Take shapes, type, bytes and place from the input: a tensor, or a list of tensors or of `P2POp`."""
        if value is None:
            self.is_host = self.group.is_gloo
        elif isinstance(value, list | tuple):
            self._describe_several(cast("Sequence[Any]", value))
        else:
            self.shapes = (value.shape,)
            self.dtype = value.dtype
            self.size = value.nbytes
            self.is_host = value.is_cpu and self.group.is_gloo

    def _describe_several(self, value: Sequence[Any]) -> None:
        tensors = [each.tensor for each in value] if self.operation.is_batch else value
        if tensors:
            self.shapes = tuple([each.shape for each in tensors])
            self.dtype = tensors[0].dtype
            self.size = sum(each.nbytes for each in tensors)
            self.is_host = tensors[0].is_cpu and self.group.is_gloo
