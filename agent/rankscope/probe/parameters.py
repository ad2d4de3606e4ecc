"""The model's parameters as subjects of rows, and the gradient hooks they carry while a step is captured.

Hooks are put on when a captured step begins and taken off when it ends, so a step that is not captured
runs none, and parameters that were frozen, unfrozen or replaced (`load_state_dict(assign=True)`) since
are found: 2 µs per parameter and captured step, against 6 µs per parameter in every step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.graph import Node, joined, own_parameters
from rankscope.probe.hooks import Guard, Hook
from rankscope.probe.rows import Subject
from rankscope_proto.names import Role

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

_WEIGHT, _GRAD = Role.WEIGHT.code, Role.GRAD.code


@dataclass(frozen=True, slots=True)
class Tracked:
    """A trainable parameter of a captured step.

    Attributes:
        parameter: The parameter; tied ones appear once.
        weight: What a row about its values is about.
        gradient: What a row about its gradient is about.
    """

    parameter: nn.Parameter
    weight: Subject
    gradient: Subject


class Parameters:
    """The trainable parameters that the configuration wants.

    Args:
        nodes: The model's modules.
        configuration: Filters by path.
        guard: Of the watch.
    """

    def __init__(self, nodes: Sequence[Node], configuration: CaptureConfiguration, *, guard: Guard) -> None:
        self._nodes = nodes
        self._configuration = configuration
        self.guard = guard
        self._subjects: dict[str, tuple[Subject, Subject] | None] = {}
        self._by_id: dict[int, Tracked] = {}
        self._handles: list[RemovableHandle] = []
        self._accumulated: Callable[[Tracked], None] | None = None

    @property
    def tracked(self) -> list[Tracked]:
        """The armed parameters, in declaration order."""
        return list(self._by_id.values())

    @property
    def is_armed(self) -> bool:
        """Whether gradients are reported now."""
        return self._accumulated is not None

    def arm(self, accumulated: Callable[[Tracked], None]) -> None:
        """Report each gradient when it has been accumulated, before any reduction. Again: nothing happens."""
        if self.is_armed:
            return
        self._accumulated = accumulated
        for tracked in self._trainable():
            self._by_id.setdefault(id(tracked.parameter), tracked)
        hook = Hook(self, Parameters._gradient_accumulated)
        self._handles = [tracked.parameter.register_post_accumulate_grad_hook(hook) for tracked in self._by_id.values()]

    def disarm(self) -> None:
        """Take the hooks off."""
        self._accumulated = None
        self._by_id = {}
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _gradient_accumulated(self, parameter: nn.Parameter) -> None:
        tracked = self._by_id.get(id(parameter))
        if tracked is not None and self._accumulated is not None:
            self._accumulated(tracked)

    def _trainable(self) -> Iterator[Tracked]:
        for node in self._nodes:
            for name, parameter in own_parameters(node.module):
                subjects = self._subjects_of(node, name) if parameter.requires_grad else None
                if subjects is not None:
                    yield Tracked(parameter, *subjects)

    def _subjects_of(self, node: Node, name: str) -> tuple[Subject, Subject] | None:
        path = joined(node.path, name)
        if path not in self._subjects:
            roles = [
                Subject(path, node.path, node.layer_index, str(node.layer_type), role) for role in (_WEIGHT, _GRAD)
            ]
            self._subjects[path] = (roles[0], roles[1]) if self._configuration.wants(path) else None
        return self._subjects[path]
