"""What one microstep added to a gradient, where something had been accumulated before it.

`.grad` is the running total. A hook on the parameter sees what autograd is about to add to it. The hooks
are put on when a backward begins, on the parameters that hold a gradient by then, and taken off when it
ends: where gradients are set to None between steps (the usual way) a training without accumulation never
has one, and each costs 11 µs. Zeros that `zero_grad(set_to_none=False)` has left count as nothing
accumulated on the host; on a device they are not looked at, and the increment is written although it is
the total.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankscope.probe.depth import Depth
from rankscope.probe.hooks import Guard, Hook
from rankscope.probe.parameters import Tracked
from rankscope.probe.sheet import Sheet
from rankscope.probe.tensors import PLAIN
from rankscope.probe.torch_inner import number, on_gradient
from rankscope_proto.names import TENSOR_FLAGS, GapCause, Phase, Role

if TYPE_CHECKING:
    from rankscope.probe.rows import Row
    from rankscope.probe.torch_inner import Removable

_LOCAL = TENSOR_FLAGS["local"]
_BACKWARD, _INCREMENT = Phase.BACKWARD.code, Role.GRAD_INCREMENT.code


class Increments:
    """Measures the increments of one watch's gradients.

    Args:
        sheet: Takes the rows.
        guard: Of the watch; hooks on parameters are under it.
    """

    def __init__(self, sheet: Sheet, *, guard: Guard) -> None:
        self._sheet = sheet
        self.guard = guard
        self._least = Depth.NONE
        self._handles: list[Removable] = []
        self._seen: dict[str, Row | None] = {}
        self._silent: list[str] = []
        self._has_told = False

    def begin(self, tracked: Iterable[Tracked], least: Depth) -> None:
        """A backward begins.

        Args:
            tracked: The parameters whose gradients are looked at.
            least: How closely to look, where nothing asks for more.
        """
        self.end()
        self._least = least
        for each in tracked:
            if each.parameter.grad is not None and self._sheet.depth(each.gradient.of(_INCREMENT), least):
                self._handles.append(on_gradient(each.parameter, Hook(self, _arrival(each))))
                if type(each.parameter) not in PLAIN:
                    self._silent.append(each.gradient.name)

    def end(self) -> None:
        """It is over."""
        for handle in self._handles:
            handle.remove()
        missing = [name for name in self._silent if name not in self._seen]
        if missing and not self._has_told and self._sheet.is_open:
            self._has_told = True
            detail = f"increments of {len(missing)} sharded parameters, such as {missing[0]}: their hooks do not run"
            self._sheet.gap(GapCause.UNSUPPORTED, detail)
        self._handles, self._silent, self._seen = [], [], {}

    def arrived(self, tracked: Tracked, increment: Tensor) -> None:
        """Measure what is about to be added to a gradient."""
        name, total = tracked.gradient.name, tracked.parameter.grad
        if name in self._seen:
            self._forget(name)
        elif total is not None and not is_known_zero(total):
            rows = self._sheet.measure(
                [(tracked.gradient.of(_INCREMENT), increment)], self._least, phase=_BACKWARD, flags=_LOCAL
            )
            self._seen[name] = rows[0] if rows else None

    def _forget(self, name: str) -> None:
        """A reentrant checkpoint runs a backward of its own: the increment comes in parts, and none is the whole."""
        row = self._seen[name]
        if row is not None:
            row.is_void = True


def is_known_zero(total: Tensor) -> bool:
    """Whether a gradient is on the host and all zeros."""
    if not total.is_cpu or type(total) not in PLAIN or total.layout is not torch.strided:
        return False
    return number(total.sum()) == 0 and not number(total.any())


def _arrival(tracked: Tracked) -> Callable[[Increments, Tensor], None]:
    """What the hook on one parameter does."""

    def increment_arrived(increments: Increments, increment: Tensor) -> None:
        increments.arrived(tracked, increment)

    return increment_arrived
