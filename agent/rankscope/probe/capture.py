"""What a watch captures of one step: which tensors, when, and what makes it look closer.

In every step the output of each layer and the loss are checked for non-finite elements. In every
`every`-th step, and in the step in which a non-finite element is seen and the one after it, weights and
gradients are measured too: local gradients in their post-accumulate hooks (before any reduction; where a
process trains alone, together at the end of backward), reduced gradients and weights at the end of
backward. Never in an optimizer hook: a guarded update skips it, and clipping has rewritten the gradients
by then.
"""

import math
from collections.abc import Callable, Sequence
from operator import attrgetter

import torch
from torch import Tensor

from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.graph import joined
from rankscope.probe.meters import FINITE, MAX_PENDING, Accelerator, DeviceMeter, HostMeter, Meter
from rankscope.probe.model_rows import gap_block
from rankscope.probe.parameters import Parameters, Tracked
from rankscope.probe.ports import OpenStep, Recording
from rankscope.probe.rows import Columns, Row, Subject
from rankscope.probe.tensors import PLAIN, Measurable, Traits, Unsupported, measurable, tensors_of
from rankscope.probe.torch_inner import current_backward, is_sole_hook, is_transformed, number, trains_alone
from rankscope_proto.names import TENSOR_FLAGS, GapCause, Phase, Role

MAX_ALERTS_IN_A_ROW = 3
"""Steps captured in full because of non-finite elements, one after another; a run that stays
non-finite would otherwise pay for a full capture in every step to its end."""

_time_of = attrgetter("time_ns")

ACTIVATION = Role.ACTIVATION.code
_FORWARD, _BACKWARD = Phase.FORWARD.code, Phase.BACKWARD.code
_LOCAL, _REDUCED = TENSOR_FLAGS["local"], TENSOR_FLAGS["reduced"]


def meter_of(device: torch.device) -> Meter:
    """The meter for tensors of a device."""
    return HostMeter() if device.type == "cpu" else DeviceMeter(Accelerator(device))


class Capture:
    """The tensor statistics of one watch.

    Args:
        recording: Where rows go.
        configuration: What to capture, and when.
        parameters: The model's parameters, which can be armed with gradient hooks.
        root: Path of the model; the loss's name is built from it.
        meter_for: Makes the meter of a device.
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
        self._recording = recording
        self._configuration = configuration
        self._parameters = parameters
        self._loss = Subject(joined(root, "loss"), root, None, "", ACTIVATION)
        self._meter_for = meter_for
        self._columns = Columns()
        self._meters: dict[torch.device, Meter] = {}
        self._unsupported: set[tuple[str, str]] = set()
        self._wall_ns = recording.clock.wall_ns
        self._is_open = False
        self._number = self._microstep = self._backwards = 0
        self._is_nonfinite = False
        self._look_closer = False
        self._alerts = 0
        self._known_backward = -1
        self._waiting: list[tuple[Tracked, int]] = []
        self._usual: dict[int, tuple[torch.dtype, Traits]] = {}
        self._finite: list[Row] = []

    def begin(self, step: OpenStep) -> None:
        """A step begins: take in what has arrived from devices, and arm the gradients if it is to be captured."""
        self._settle(wait=False)
        alerted = self._is_nonfinite
        self._alerts = self._alerts + 1 if alerted else 0
        self._is_open, self._is_nonfinite = True, False
        self._number, self._microstep, self._backwards = step.step, step.microstep, 0
        if self._configuration.captures(step.step) or (alerted and self._may_look_closer()):
            self._arm()

    def output(self, subject: Subject, output: object) -> None:
        """Check a layer's output.

        Nearly always it is the plain CPU tensor that it was before, with a finite sum: that takes this one
        frame. With cold caches each frame between here and the sum costs 2 to 5 µs, and there are eight.
        """
        usual = self._usual.get(id(subject))
        if (
            usual is not None
            and type(output) is Tensor
            and output.dtype is usual[0]
            and output.shape == usual[1].shape
            and output.is_cpu
            and output.layout is torch.strided
            and not is_transformed(output)
            and self._is_open
            and math.isfinite(number(output.detach().sum()))
        ):
            row = Row(subject, usual[1], _FORWARD, 0, self._wall_ns(), self._number, self._microstep, FINITE)
            self._finite.append(row)
            return
        if isinstance(output, Tensor):
            self._check(subject, output)
            self._learn(subject, output)
            return
        for index, tensor in tensors_of(output):
            self._check(subject.at(index), tensor)

    def loss(self, loss: Tensor) -> None:
        """Check the loss."""
        self.output(self._loss, loss)

    def _learn(self, subject: Subject, tensor: Tensor) -> None:
        """Remember what the output usually is, if it is what `output` can check by itself."""
        if type(tensor) is not Tensor or not tensor.is_cpu or not isinstance(self._meter(tensor.device), HostMeter):
            return
        prepared = measurable(tensor)
        if isinstance(prepared, Measurable) and prepared.values.dtype is tensor.dtype and not prepared.traits.placement:
            self._usual[id(subject)] = (tensor.dtype, prepared.traits)

    def backward_begins(self, backward: int) -> None:
        """An engine's run has begun, at whose end `after_backward` is called."""
        self._waiting = []
        self._known_backward = backward if trains_alone() else -1

    def after_backward(self, *, reduced: bool) -> None:
        """Measure what backward left: gradients, if they were reduced over the ranks, and the weights, once a step."""
        self._measure_waiting()
        if self._parameters.is_armed:
            tracked = self._parameters.tracked
            if reduced:
                gradients = [(each.gradient, each.parameter.grad) for each in tracked]
                self._norms([(subject, grad) for subject, grad in gradients if grad is not None], _REDUCED)
            if self._backwards == 0:
                self._norms([(each.weight, each.parameter) for each in tracked], 0)
        self._backwards += 1
        self._microstep += 1

    def end(self) -> None:
        """The step is over: hand its rows over, and start those on devices on their way."""
        self._measure_waiting()
        self._parameters.disarm()
        for meter in self._meters.values():
            meter.close_step()
        self._settle(wait=False)
        self._is_open = False

    def close(self) -> None:
        """Wait for what is still on its way, and hand it over."""
        self.end()
        self._settle(wait=True)

    def _may_look_closer(self) -> bool:
        return self._configuration.level >= 1 and self._alerts <= MAX_ALERTS_IN_A_ROW

    def _arm(self) -> None:
        self._parameters.arm(self._local_gradient)

    def _local_gradient(self, tracked: Tracked) -> None:
        """Measure a gradient as autograd left it; that of a sharded parameter is its reduced shard by then."""
        gradient = tracked.parameter.grad
        if gradient is not None and self._may_wait(tracked.parameter, gradient):
            self._waiting.append((tracked, gradient._version))
            return
        prepared = None if gradient is None else self._prepared(tracked.gradient, gradient)
        if prepared is not None and self._is_open:
            flags = _REDUCED if prepared.traits.placement else _LOCAL
            row = self._row(tracked.gradient, prepared, phase=_BACKWARD, flags=flags)
            self._meter(prepared.values.device).norms((prepared.values,), (row,))

    def _may_wait(self, parameter: Tensor, gradient: Tensor) -> bool:
        """Whether nobody rewrites the gradient before backward ends: no other rank, no other hook.

        54 gradients measured one after the other, with warm caches, cost 0.7 ms less than each in its hook.
        """
        is_known = self._known_backward != -1 and self._known_backward == current_backward()
        return is_known and type(gradient) in PLAIN and is_sole_hook(parameter)

    def _measure_waiting(self) -> None:
        """Measure the gradients that waited; one that was rewritten since a backward that failed is left out."""
        waiting, self._waiting = self._waiting, []
        self._known_backward = -1
        gradients = [(each.gradient, each.parameter.grad, version) for each, version in waiting]
        intact = [(subject, grad) for subject, grad, seen in gradients if grad is not None and grad._version == seen]
        self._norms(intact, _LOCAL)

    def _check(self, subject: Subject, tensor: Tensor) -> None:
        prepared = self._prepared(subject, tensor)
        if prepared is None or not self._is_open:
            return
        row = self._row(subject, prepared, phase=_FORWARD)
        self._meter(prepared.values.device).finiteness(prepared.values, row)
        if row.numbers.nonfinite_count:
            self._alert()

    def _alert(self) -> None:
        """A non-finite element was seen: also capture this step's gradients, which are still to come."""
        if not self._is_nonfinite and self._may_look_closer():
            self._arm()
        self._is_nonfinite = True

    def _norms(self, tensors: Sequence[tuple[Subject, Tensor]], flags: int) -> None:
        if not self._is_open:
            return
        batches: dict[torch.device, tuple[list[Tensor], list[Row]]] = {}
        for subject, tensor in tensors:
            prepared = self._prepared(subject, tensor)
            if prepared is not None:
                values, rows = batches.setdefault(prepared.values.device, ([], []))
                values.append(prepared.values)
                rows.append(self._row(subject, prepared, phase=_BACKWARD, flags=flags))
        for device, (values, rows) in batches.items():
            self._meter(device).norms(values, rows)

    def _row(self, subject: Subject, tensor: Measurable, *, phase: int, flags: int = 0) -> Row:
        return Row(
            subject=subject,
            tensor=tensor.traits,
            phase=phase,
            flags=flags,
            time_ns=self._wall_ns(),
            step=self._number,
            microstep=self._microstep,
        )

    def _prepared(self, subject: Subject, tensor: Tensor) -> Measurable | None:
        prepared = measurable(tensor)
        if not isinstance(prepared, Unsupported):
            return prepared
        if (subject.name, prepared.what) not in self._unsupported:
            self._unsupported.add((subject.name, prepared.what))
            self._gap(GapCause.UNSUPPORTED, f"{subject.name}: {prepared.what} is not measured")
        return None

    def _meter(self, device: torch.device) -> Meter:
        meter = self._meters.get(device)
        if meter is None:
            meter = self._meters[device] = self._meter_for(device)
        return meter

    def _settle(self, *, wait: bool) -> None:
        rows, self._finite = self._finite, []
        for meter in self._meters.values():
            rows += meter.settled(wait=wait)
            overdue = meter.overdue()
            if overdue:
                self._gap(GapCause.BUDGET, f"{overdue} rows had not left the device after {MAX_PENDING} steps")
        rows.sort(key=_time_of)  # the order of rows is the order in which things ran
        self._is_nonfinite |= any(row.numbers.nonfinite_count for row in rows)
        # Apart, since the rows of a check have no norms, and norms are half of a row's bytes.
        for phase in (_FORWARD, _BACKWARD):
            of_phase = [row for row in rows if row.phase == phase]
            if of_phase:
                self._recording.append(self._columns.block(of_phase))

    def _gap(self, cause: GapCause, detail: str) -> None:
        self._recording.append(gap_block(cause, detail, time_ns=self._wall_ns()))
