"""What a watch captures of one step: which tensors, how closely, and what makes it look closer.

In every step the output of each layer and the loss are checked for non-finite elements. In every
`every`-th step, and in the step in which a non-finite element is seen and the one after it, weights and
gradients are measured too: local gradients in their post-accumulate hooks (before any reduction; where a
process trains alone, together at the end of backward), reduced gradients and weights at the end of
backward. Never in an optimizer hook: a guarded update skips it, and clipping has rewritten the gradients
by then. From level 2 on such a step has the whole table of each of them, of the outputs, and of the
gradients that arrive at the outputs, and says how far each optimizer moved each weight: only that is looked at
around an optimizer's step. What a microstep adds to a gradient is seen where something is accumulated.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor
from torch.optim import Optimizer

from rankscope._root_error import Deliberate
from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.cost import METRIC, Cost
from rankscope.probe.depth import Depth, Key
from rankscope.probe.graph import Node, joined
from rankscope.probe.increments import Increments
from rankscope.probe.meters import Meter
from rankscope.probe.outputs import ACTIVATION, Outputs
from rankscope.probe.parameters import Parameters, Tracked, Waiting
from rankscope.probe.ports import OpenStep, Recording
from rankscope.probe.rows import OUTPUT_ROLES, Row, Subject
from rankscope.probe.selection import OF_PARAMETERS
from rankscope.probe.sheet import Sheet, meter_of
from rankscope.probe.torch_inner import leaves_out_itself, trains_alone
from rankscope.probe.untold import Untold
from rankscope.probe.updates import Updates
from rankscope_proto.names import TENSOR_FLAGS, Phase, Role

MAX_ALERTS_IN_A_ROW = 3
"""Steps captured in full because of non-finite elements, one after another; a run that stays
non-finite would otherwise pay for a full capture in every step to its end."""

_BACKWARD = Phase.BACKWARD.code
_LOCAL, _REDUCED = TENSOR_FLAGS["local"], TENSOR_FLAGS["reduced"]


class Capture:
    """The tensor statistics of one watch.

    Args:
        recording: Where rows go.
        configuration: What to capture, and when.
        parameters: The model's parameters, which can be armed with gradient hooks.
        root: Path of the model; the loss's name is built from it.
        meter_for: Makes the meter of a device.

    Attributes:
        outputs: Looks at outputs of modules.
        sheet: The rows of the open step.
        cost: What the watch costs, and which steps it captures in full.
        is_captured: Whether the open step is captured in full by its number.
        is_deep: Whether the whole table is taken in it.
    """

    def __init__(
        self,
        recording: Recording,
        configuration: CaptureConfiguration,
        *,
        parameters: Parameters,
        root: str = "",
        meter_for: Callable[[torch.device], Meter] = meter_of,
    ) -> None:
        self._mono_ns = recording.clock.mono_ns
        self._parameters = parameters
        self._loss = Subject(joined(root, "loss"), root, None, "", ACTIVATION)
        self.sheet = Sheet(recording, meter_for)
        self.outputs = Outputs(self.sheet, guard=parameters.guard, alert=self._alert)
        self._backwards = 0
        self._has_begun = False
        self._alerts = 0
        metric = joined(METRIC, root) if root else METRIC
        self.cost = Cost(recording, configuration, guard=parameters.guard, metric=metric)
        self.is_captured = self.is_deep = False
        self._least = Depth.NONE
        self._raised_parameters: set[Key] = set()
        self._increments = Increments(self.sheet, guard=parameters.guard)
        self._updates = Updates(self.sheet)
        self._untold = Untold(self.sheet)
        self._local: dict[str, Row] = {}
        self._named: dict[str, Subject] = {}
        self.configure(configuration)

    def configure(self, configuration: CaptureConfiguration) -> None:
        """Capture by another configuration from the next step on."""
        self._configuration = configuration
        self._updates.is_whole = self.sheet.finishing.are_updates_whole = configuration.whole_updates
        self._see_to_ratios()
        self.cost.configure(configuration)
        self.outputs.forget()

    def raise_depths(self, raised: Mapping[Key, Depth]) -> None:
        """Look at these tensors more closely from the next step on."""
        self.sheet.raised = raised
        self.outputs.forget()
        self._raised_parameters = {key for key in raised if key[1] not in OUTPUT_ROLES}
        self._see_to_ratios()

    def _see_to_ratios(self) -> None:
        self.sheet.finishing.has_ratios = self._configuration.level >= 2 or bool(self._raised_parameters)

    def begin(self, step: OpenStep) -> None:
        """A step begins: take in what has arrived from devices, and arm the gradients if it is to be captured."""
        sheet = self.sheet
        self.is_captured = self.cost.begin(step.step)
        sheet.settle(wait=False)
        alerted = sheet.is_nonfinite
        self._alerts = self._alerts + 1 if alerted else 0
        sheet.begin(step)
        self._backwards = 0
        self._has_begun = False
        self._least = Depth.NONE
        self.is_deep = self.is_captured and self._configuration.level >= 2
        self.outputs.begin(*self._output_depths())
        if self.is_captured or (alerted and self._may_look_closer()):
            self._arm()
        elif self._raised_parameters:
            self._parameters.arm(self._local_gradient, self._raised_parameters)
        self.cost.begun()

    def _output_depths(self) -> tuple[Depth, Depth]:
        """How closely outputs, and the gradients that arrive at them, are looked at in this step."""
        wants = self._configuration.wants_role
        outputs = Depth.TABLE if self.is_deep else Depth.FINITE
        gradients = Depth.TABLE if self.is_deep and wants(Role.ACTIVATION_GRAD) else Depth.NONE
        return outputs if wants(Role.ACTIVATION) else Depth.NONE, gradients

    @property
    def _depth(self) -> Depth:
        """How closely weights and gradients of a captured step are looked at."""
        return Depth.TABLE if self._configuration.level >= 2 else Depth.NORMS

    def _depth_of(self, role: Role) -> Depth:
        """How closely tensors of a role are looked at in the open step, where nothing asks for more."""
        return self._least if self._configuration.wants_role(role) else Depth.NONE

    def loss(self, loss: Tensor) -> None:
        """Check the loss."""
        self.outputs.see_loss(self._loss, loss)

    def named(self, name: str, tensor: Tensor, *, nodes: Sequence[Node]) -> None:
        """Look at a tensor that training has named, as at a layer's output."""
        subject = self._named.get(name)
        if subject is None:
            subject = self._named[name] = subject_named(name, nodes)
        if self._configuration.wants(name):
            self.outputs.see(subject, tensor)
        elif subject.key in self.sheet.raised:
            self.outputs.see_raised(subject, tensor)

    def backward_begins(self, backward: int) -> None:
        """An engine's run has begun, at whose end `after_backward` is called."""
        self._has_begun = True
        self._parameters.waiting = Waiting(backward) if trains_alone() else None
        if self._parameters.is_armed:
            self._increments.begin(self._parameters.tracked, self._depth_of(Role.GRAD_INCREMENT))

    def after_backward(self, *, reduced: bool) -> None:
        """Measure what backward left: gradients, if they were reduced over the ranks, and the weights, once a step."""
        self._measure_waiting()
        self._increments.end()
        if self._parameters.is_armed:
            tracked = self._parameters.tracked
            if reduced:
                gradients = [(each.gradient, each.parameter.grad) for each in tracked]
                self._measure_gradients([(subject, grad) for subject, grad in gradients if grad is not None], _REDUCED)
            if self._backwards == 0:
                weights = [(each.weight, each.parameter) for each in tracked]
                self.sheet.measure(weights, self._depth_of(Role.WEIGHT), phase=_BACKWARD)
        self._backwards += 1
        self._local.clear()
        self.sheet.next_microstep()
        self.outputs.microstep_begins()

    def update_begins(self, optimizer: Optimizer) -> None:
        """An optimizer is about to move its parameters."""
        moving = self._moving()
        if moving:
            self._updates.begin(optimizer, moving)
        scaling = self.sheet.finishing.scaling
        if not leaves_out_itself(optimizer):
            if scaling is not None:
                scaling.updates()
        elif scaling is None:
            self.sheet.call_scaled()

    def _moving(self) -> Sequence[Tracked]:
        """The parameters of which it is told how far the optimizer moves them."""
        tracked = self._parameters.tracked
        if self.is_deep and self._configuration.wants_role(Role.UPDATE):
            return tracked
        return [each for each in tracked if (each.weight.name, Role.UPDATE.code) in self._raised_parameters]

    def update_ends(self, optimizer: Optimizer) -> None:
        """It has moved them."""
        self._updates.end(optimizer)

    def end(self) -> None:
        """The step is over: hand its rows over, and start those on devices on their way."""
        ending_ns = self._mono_ns()
        try:
            self._end_step()
        finally:
            self.cost.end(self.sheet.number, ending_ns=ending_ns)

    def _end_step(self) -> None:
        """Gradients that still wait after a backward that failed may raise at a breakpoint; the step is over anyway."""
        try:
            self._measure_waiting()
            if self._least is not Depth.NONE and self._configuration.wants_role(Role.GRAD):
                lacks_weights = not self._has_begun and self._configuration.wants_role(Role.WEIGHT)
                self._untold.end(self._parameters.whole, self.sheet.measured, lacks_weights=lacks_weights)
        finally:
            self._increments.end()
            self._updates.forget()
            self._local.clear()
            self._parameters.disarm()
            self.sheet.end()

    def close(self) -> None:
        """Wait for what is still on its way, and hand it over."""
        with suppress(Deliberate):
            self.end()
        self.sheet.close()

    def _may_look_closer(self) -> bool:
        return self._configuration.level >= 1 and self._alerts <= MAX_ALERTS_IN_A_ROW

    def _arm(self) -> None:
        """Look at all weights and gradients that the configuration wants in this step."""
        self._least = self._depth
        if any(self._configuration.wants_role(role) for role in OF_PARAMETERS):
            self._parameters.arm(self._local_gradient)
            self._untold.begin(self._parameters.whole)

    def _local_gradient(self, tracked: Tracked) -> None:
        """Measure a gradient as autograd left it; that of a sharded parameter is its reduced shard by then."""
        gradient = tracked.parameter.grad
        if gradient is None or self.sheet.depth(tracked.gradient, self._depth_of(Role.GRAD)) is Depth.NONE:
            return
        for row in self._measure_gradients([(tracked.gradient, gradient)], _LOCAL):
            if row.tensor.placement and self._parameters.are_fully_sharded:
                row.flags = row.flags & ~_LOCAL | _REDUCED

    def _measure_waiting(self) -> None:
        """Measure the gradients that waited; one that was rewritten since a backward that failed is left out."""
        waited = self._parameters.waited()
        self._measure_gradients([(each.gradient, gradient) for each, gradient in waited], _LOCAL)

    def _alert(self) -> None:
        """A non-finite element was seen: also capture this step's gradients, which are still to come."""
        if self._least is Depth.NONE and self._may_look_closer():
            self._arm()
        self.sheet.is_nonfinite = True

    def _measure_gradients(self, tensors: Sequence[tuple[Subject, Tensor]], flags: int) -> list[Row]:
        rows = self.sheet.measure(tensors, self._depth_of(Role.GRAD), phase=_BACKWARD, flags=flags)
        if flags == _LOCAL:
            for row in rows:
                # A reentrant checkpoint runs a backward of its own: a parameter it shares with what is outside of it
                # is accumulated twice, and only the last time is the gradient whole.
                earlier = self._local.get(row.subject.name)
                if earlier is not None:
                    earlier.is_void = True
                self._local[row.subject.name] = row
        return rows


def subject_named(name: str, nodes: Sequence[Node]) -> Subject:
    """What rows of a tensor that training has named are about: the nearest module whose path its name begins with."""
    owners = [node for node in nodes if not node.path or name.startswith(f"{node.path}.")]
    owner = max(owners, key=lambda node: len(node.path), default=None)
    if owner is None:
        return Subject(name, "", None, "", ACTIVATION)
    return Subject(name, owner.path, owner.layer_index, str(owner.layer_type), ACTIVATION)
