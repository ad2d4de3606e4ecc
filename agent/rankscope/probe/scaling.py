"""Loss scaling: gradients as they would be without it, and the steps whose update the scaler left out.

A scaler multiplies the loss, and with it every gradient, by a power of two that it changes as it goes. Rows
of gradients are divided by the scale that was live in their backward; they say so, and by how much. Where
the scale cannot be read, rows keep their numbers and say that they are scaled.

The scale lives on the device of the loss. There it is copied where it is read, travels to the host with the
end of the step, and is looked at when it has arrived: nothing here makes the host wait. That an update was
left out shows in the scale: the scaler backs off, and by nothing else does it shrink by just its back-off
factor.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankscope._block import Block
from rankscope.probe.meters import MAX_PENDING, Device, Event, device_of
from rankscope.probe.ports import Recording
from rankscope.probe.rows import LossScale, Numbers, Row
from rankscope.probe.statistics import table
from rankscope.probe.torch_inner import live_scale, number, numbers
from rankscope_proto.log2_histogram import BUCKETS, LOWEST
from rankscope_proto.names import TENSOR_FLAGS, EventKind, Role, Severity

if TYPE_CHECKING:
    from torch.amp.grad_scaler import GradScaler

GRADIENTS = frozenset({Role.GRAD.code, Role.GRAD_INCREMENT.code, Role.ACTIVATION_GRAD.code})
"""Roles whose values are multiplied by the loss scale."""

SCALED_ROLES = GRADIENTS | {Role.UPDATE.code}
"""Roles whose rows depend on what the scaler did."""

SCALED, UNSCALED, SKIPPED = TENSOR_FLAGS["scaled"], TENSOR_FLAGS["unscaled"], TENSOR_FLAGS["skipped"]

_LINEAR = ("absmax", "l2", "min", "max", "absmin_nonzero", "mean", "std", "l1", "rms")
"""Statistics that are as many times greater as the values are."""


@dataclass(slots=True)
class _Travelling:
    """Scales of one step on their way to the host."""

    event: Event
    packed: Tensor  # kept until the copy has been made
    host: Tensor
    arriving: list[LossScale]
    chain: list[LossScale]


class Scaling:
    """The loss scaler of one watch.

    Args:
        scaler: The scaler that training scales its losses with.
        recording: Where events go.
        root: Path of the model.
        device_for: Makes what copies from a device; None where values can be read at once.
    """

    def __init__(
        self,
        scaler: "GradScaler",
        recording: Recording,
        *,
        root: str = "",
        device_for: Callable[[torch.device], Device | None] = device_of,
    ) -> None:
        self._scaler = scaler
        self._recording = recording
        self._root = root
        self._device_for = device_for
        self._devices: dict[torch.device, Device | None] = {}
        self._step = 0
        self._live: LossScale | None = None
        self._before: LossScale | None = None
        self._of_step: list[LossScale] = []
        self._launched: list[tuple[LossScale, Tensor]] = []
        self._travelling: deque[_Travelling] = deque()
        self._told = -1

    def begin(self, step: int) -> None:
        """A step begins."""
        self._step = step
        self._live = None
        self._of_step, self._launched = [], []

    def live(self) -> LossScale | None:
        """The scale of the backward that runs; None: nothing has been scaled yet, or the scaler is switched off.

        Nor is there one while a graph is captured, whose values are computed only when it is replayed.
        """
        if self._live is None:
            self._live = self._read()
            if self._live is not None:
                self._of_step.append(self._live)
        return self._live

    def microstep_ends(self) -> None:
        """The next backward may run under another scale."""
        self._live = None

    def updates(self) -> None:
        """An optimizer's update begins that the scaler did not leave out."""
        for scale in self._of_step:
            scale.is_applied = True

    def end(self) -> None:
        """The step is over: look at what became of the scale, or start it on its way."""
        end = self._read()
        chain = [scale for scale in (self._before, *self._of_step, end) if scale is not None]
        self._before = end
        if self._launched and not self._is_capturing():
            self._send(chain)
        else:
            self._judge(chain)

    def settle(self, *, wait: bool) -> None:
        """Take in the scales that have arrived; `wait` for all of them (never in a step)."""
        if not wait and self._is_capturing():
            return
        while self._travelling and (wait or self._travelling[0].event.query()):
            arrived = self._travelling.popleft()
            if wait:
                arrived.event.synchronize()
            for scale, value in zip(arrived.arriving, numbers(arrived.host), strict=True):
                scale.value = value
            self._judge(arrived.chain)
        while len(self._travelling) > MAX_PENDING:
            self._judge(self._travelling.popleft().chain)

    def _read(self) -> LossScale | None:
        tensor = live_scale(self._scaler)
        if tensor is None:
            return None
        device = self._device(tensor.device)
        if device is not None and device.is_capturing():
            return None
        scale = LossScale(self._step, self._recording.clock.wall_ns())
        if device is None:
            scale.value = number(tensor.reshape(()))
        else:
            self._launched.append((scale, tensor.reshape(()).clone()))
        return scale

    def _device(self, where: torch.device) -> Device | None:
        if where not in self._devices:
            self._devices[where] = self._device_for(where)
        return self._devices[where]

    def _is_capturing(self) -> bool:
        return any(device is not None and device.is_capturing() for device in self._devices.values())

    def _send(self, chain: list[LossScale]) -> None:
        launched, self._launched = self._launched, []
        packed = torch.stack([tensor.float() for _, tensor in launched])
        device = self._device(packed.device)
        if device is None:
            return
        host = device.host_buffer(packed.numel())[: packed.numel()]
        arriving = [scale for scale, _ in launched]
        self._travelling.append(_Travelling(device.send(packed, host), packed, host, arriving, chain))

    def _judge(self, chain: Sequence[LossScale]) -> None:
        """Find the scales after which the scaler backed off; all that one update covers were equal before it."""
        skipped = False
        for scale, after in zip(reversed(chain[:-1]), reversed(chain[1:]), strict=True):
            fell = self._fell(scale, after)
            skipped = fell or (skipped and scale.value == after.value and scale.step == after.step)
            scale.is_skipped = skipped and not scale.is_applied
            if scale.is_skipped and fell:
                self._tell(scale, after)
        for scale in chain:
            scale.is_judged = True

    def _fell(self, scale: LossScale, after: LossScale) -> bool:
        if scale.value is None or after.value is None:
            return False
        backed_off = scale.value * self._scaler.get_backoff_factor()
        return after.value < scale.value and math.isclose(after.value, backed_off, rel_tol=1e-6)

    def _tell(self, scale: LossScale, after: LossScale) -> None:
        if scale.step == self._told:
            return
        self._told = scale.step
        payload = {"loss_scale": scale.value, "loss_scale_after": after.value, "model": self._root}
        columns = {
            "time": (after.time_ns,),
            "kind": (EventKind.STEP_SKIPPED.value,),
            "name": ("the loss scaler left out the update",),
            "severity": (Severity.INFO.code,),
            "payload": (json.dumps(payload),),
            "step": (scale.step,),
        }
        self._recording.append(Block("events", 1, columns))


def unscale(row: Row, values: Tensor | None = None) -> None:
    """Divide a gradient's numbers by its loss scale, if that has become known.

    Args:
        row: Its numbers are known. Again: nothing happens.
        values: The values it is about, where they are still there.
    """
    scale = row.loss_scale
    if scale is None or row.subject.role not in GRADIENTS or row.flags & (SCALED | UNSCALED):
        return
    if scale.value is None and not scale.is_judged:
        return
    if scale.value is None or not 0 < scale.value < math.inf:
        row.flags |= SCALED
        return
    row.flags |= UNSCALED
    row.numbers = divided(row.numbers, scale.value, values=values)


def divided(stored: Numbers, scale: float, *, values: Tensor | None = None) -> Numbers:
    """The statistics of values that are `scale` times smaller than those that were measured.

    Counts, of subnormal and saturated elements too, and the fingerprint stay those of the stored values.

    Args:
        stored: The statistics of the stored values.
        scale: Above 0, finite.
        values: The stored values, to count those beyond the histogram's ends again; without them such a
            histogram is left out.
    """
    linear = {name: getattr(stored, name) for name in _LINEAR}
    known = {name: value / scale for name, value in linear.items() if value is not None}
    histogram = stored.log2_hist
    if histogram and scale != 1:
        shifted = _shifted(stored, scale)
        again = () if shifted is not None or values is None else table(_quotient(values, scale)).log2_hist
        histogram = again if shifted is None else shifted
    return stored._replace(**known, log2_hist=histogram, loss_scale=scale)


def _quotient(values: Tensor, scale: float) -> Tensor:
    return (values if values.dtype is torch.float64 else values.float()) / scale


def _shifted(stored: Numbers, scale: float) -> tuple[int, ...] | None:
    """The histogram moved by the scale's exponent; None where that would not be exact."""
    mantissa, exponent = math.frexp(scale)
    least, greatest = stored.absmin_nonzero, stored.absmax
    if mantissa != 0.5:
        return None
    if least is None or greatest is None:
        return stored.log2_hist
    if greatest >= 2.0 ** (LOWEST + BUCKETS) or least < 2.0**LOWEST:
        return None
    moved = [0] * BUCKETS
    for bucket, amount in enumerate(stored.log2_hist):
        moved[min(max(bucket - (exponent - 1), 0), BUCKETS - 1)] += amount
    return tuple(moved)
