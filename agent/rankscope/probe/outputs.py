"""Outputs of modules, the loss among them, and the gradients that arrive at them.

An output is looked at in its forward hook, while its values are those the module computed: an in-place
operation may overwrite them a moment later. The gradient of an output is seen by a hook on the output
itself, put there in the steps that are captured in full; a module's backward hook never fires where the
output is a list, a dict or a dataclass, and makes in-place operations fail.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rankscope.probe.hooks import Guard, Hook
from rankscope.probe.meters import FINITE, HostMeter
from rankscope.probe.rows import Row, Subject
from rankscope.probe.sheet import Depth, Sheet
from rankscope.probe.tensors import Measurable, Traits, measurable, tensors_of
from rankscope.probe.torch_inner import is_transformed, number
from rankscope_proto.names import Phase, Role

_FORWARD, _BACKWARD = Phase.FORWARD.code, Phase.BACKWARD.code
ACTIVATION, ACTIVATION_GRAD = Role.ACTIVATION.code, Role.ACTIVATION_GRAD.code


class Outputs:
    """Looks at outputs as closely as the open step asks for.

    Args:
        sheet: Takes the rows.
        guard: Of the watch; hooks on outputs are under it.
        alert: Called when a non-finite element was seen.
    """

    def __init__(self, sheet: Sheet, *, guard: Guard, alert: Callable[[], object]) -> None:
        self._sheet = sheet
        self.guard = guard
        self._alert = alert
        self._usual: dict[int, tuple[torch.dtype, Traits]] = {}
        self._calls: dict[int, int] = {}
        self.depth = Depth.FINITE
        self.gradient_depth = Depth.NONE

    def begin(self, depth: Depth, gradient_depth: Depth) -> None:
        """A step begins, in which outputs and their gradients are looked at so closely."""
        self.depth, self.gradient_depth = depth, gradient_depth
        self._calls.clear()

    def microstep_begins(self) -> None:
        """The next forward is another microstep's: calls are counted anew."""
        self._calls.clear()

    def see(self, subject: Subject, output: object) -> None:
        """Look at an output.

        Nearly always it is the plain CPU tensor that it was before, with a finite sum: that takes this one
        frame. With cold caches each frame between here and the sum costs 2 to 5 µs, and there are eight.
        """
        call = self._calls.get(id(subject), 0)
        self._calls[id(subject)] = call + 1
        usual = self._usual.get(id(subject))
        if (
            usual is not None
            and self.depth is Depth.FINITE
            and type(output) is Tensor
            and output.dtype is usual[0]
            and output.shape == usual[1].shape
            and output.is_cpu
            and output.layout is torch.strided
            and not is_transformed(output)
            and self._sheet.is_open
            and math.isfinite(number(output.detach().sum()))
        ):
            sheet = self._sheet
            row = Row(subject, usual[1], _FORWARD, 0, sheet.wall_ns(), sheet.number, sheet.microstep, FINITE, call)
            sheet.finite.append(row)
            return
        if isinstance(output, Tensor):
            self._look(subject, output, call=call)
            self._learn(subject, output)
            return
        for index, tensor in tensors_of(output):
            self._look(subject.at(index), tensor, call=call)

    def _look(self, subject: Subject, tensor: Tensor, *, call: int) -> None:
        rows = self._sheet.measure([(subject, tensor)], self.depth, phase=_FORWARD, call=call)
        if any(row.numbers.nonfinite_count for row in rows):
            self._alert()
        if self.gradient_depth is not Depth.NONE and tensor.requires_grad and self._sheet.is_open:
            tensor.register_hook(Hook(self, _arrival(subject.of(ACTIVATION_GRAD), call, step=self._sheet.number)))

    def gradient(self, subject: Subject, gradient: Tensor, *, call: int, step: int) -> None:
        """Look at the gradient that arrived at an output of a step."""
        if step == self._sheet.number:
            self._sheet.measure([(subject, gradient)], self.gradient_depth, phase=_BACKWARD, call=call)

    def _learn(self, subject: Subject, tensor: Tensor) -> None:
        """Remember what the output usually is, if it is what `see` can check by itself."""
        if type(tensor) is not Tensor or not tensor.is_cpu:
            return
        if not isinstance(self._sheet.meter(tensor.device), HostMeter):
            return
        prepared = measurable(tensor)
        if isinstance(prepared, Measurable) and prepared.values.dtype is tensor.dtype and not prepared.traits.placement:
            self._usual[id(subject)] = (tensor.dtype, prepared.traits)


def _arrival(subject: Subject, call: int, *, step: int) -> Callable[[Outputs, Tensor], None]:
    """What the hook on one output does."""

    def gradient_arrived(outputs: Outputs, gradient: Tensor) -> None:
        outputs.gradient(subject, gradient, call=call, step=step)

    return gradient_arrived
