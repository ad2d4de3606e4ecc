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

from rankscope.probe.depth import Depth
from rankscope.probe.hooks import Guard, Hook
from rankscope.probe.meters import FINITE, HostMeter
from rankscope.probe.rows import Row, Subject
from rankscope.probe.sheet import Sheet
from rankscope.probe.tensors import Measurable, Traits, measurable, summable, tensors_of
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

    Attributes:
        depth: How closely the outputs that the configuration chose are looked at in the open step.
        gradient_depth: How closely the gradients that arrive at them are.
        count: Outputs seen in the open step.
    """

    def __init__(self, sheet: Sheet, *, guard: Guard, alert: Callable[[], object]) -> None:
        self._sheet = sheet
        self.guard = guard
        self._alert = alert
        self._usual: dict[int, tuple[torch.dtype, Traits]] = {}
        self._calls: dict[int, int] = {}
        self.depth = Depth.FINITE
        self.gradient_depth = Depth.NONE
        self.count = 0

    def begin(self, depth: Depth, gradient_depth: Depth) -> None:
        """A step begins, in which outputs and their gradients are looked at so closely."""
        self.depth, self.gradient_depth = depth, gradient_depth
        self.count = 0
        self._calls.clear()

    def microstep_begins(self) -> None:
        """The next forward is another microstep's: calls are counted anew."""
        self._calls.clear()

    def forget(self) -> None:
        """What is asked for or hooked has changed: no output is the usual one any more."""
        self._usual.clear()

    def see(self, subject: Subject, output: object) -> None:
        """Look at an output that the configuration chose.

        Nearly always it is the plain CPU tensor that it was before, with a finite sum: that takes this one
        frame. With cold caches each frame between here and the sum costs 2 to 5 µs, and there are eight.
        """
        self.count += 1
        call = self._calls.get(id(subject), 0)
        self._calls[id(subject)] = call + 1
        usual = self._usual.get(id(subject))
        if (
            usual is not None
            and self.depth is Depth.FINITE
            and type(output) is Tensor
            and output.dtype is usual[0]
            and not output.is_nested
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
        self._look(subject, output, call=call, depth=self.depth, gradient_depth=self.gradient_depth)
        if isinstance(output, Tensor) and self._sheet.depth(subject, Depth.FINITE) is Depth.FINITE:
            self._learn(subject, output)

    def see_raised(self, subject: Subject, output: object) -> None:
        """Look at an output as closely as something beyond the configuration asks for."""
        self.count += 1
        call = self._next_call(subject)
        self._look(subject, output, call=call, depth=Depth.NONE, gradient_depth=Depth.NONE)

    def see_loss(self, subject: Subject, loss: Tensor) -> None:
        """Look at the loss: at any level, and whichever roles are wanted."""
        call, depth = self._next_call(subject), max(self.depth, Depth.FINITE)
        self._look(subject, loss, call=call, depth=depth, gradient_depth=Depth.NONE)

    def _next_call(self, subject: Subject) -> int:
        call = self._calls.get(id(subject), 0)
        self._calls[id(subject)] = call + 1
        return call

    def _look(self, subject: Subject, output: object, *, call: int, depth: Depth, gradient_depth: Depth) -> None:
        gradient_depth = self._sheet.depth(subject.of(ACTIVATION_GRAD), gradient_depth)
        for index, tensor in tensors_of(output):
            one = subject.at(index) if index else subject
            rows = self._sheet.measure([(one, tensor)], depth, phase=_FORWARD, call=call)
            if any(row.numbers.nonfinite_count for row in rows):
                self._alert()
            if gradient_depth is not Depth.NONE and tensor.requires_grad and self._sheet.is_open:
                arrival = _arrival(one.of(ACTIVATION_GRAD), call, step=self._sheet.number, least=gradient_depth)
                tensor.register_hook(Hook(self, arrival))

    def gradient(self, subject: Subject, gradient: Tensor, *, call: int, step: int, least: Depth) -> None:
        """Look at the gradient that arrived at an output of a step."""
        if step == self._sheet.number:
            self._sheet.measure([(subject, gradient)], least, phase=_BACKWARD, call=call)

    def _learn(self, subject: Subject, tensor: Tensor) -> None:
        """Remember what the output usually is, if it is what `see` can check by itself and nobody asks for more."""
        raised = self._sheet.raised
        if subject.key in raised or subject.of(ACTIVATION_GRAD).key in raised:
            return
        if type(tensor) is not Tensor or not tensor.is_cpu:
            return
        if not isinstance(self._sheet.meter(tensor.device), HostMeter):
            return
        prepared = measurable(tensor)
        is_summable = isinstance(prepared, Measurable) and summable(prepared.values) is prepared.values
        if isinstance(prepared, Measurable) and is_summable and not prepared.traits.placement:
            self._usual[id(subject)] = (tensor.dtype, prepared.traits)


def _arrival(subject: Subject, call: int, *, step: int, least: Depth) -> Callable[[Outputs, Tensor], None]:
    """What the hook on one output does."""

    def gradient_arrived(outputs: Outputs, gradient: Tensor) -> None:
        outputs.gradient(subject, gradient, call=call, step=step, least=least)

    return gradient_arrived
