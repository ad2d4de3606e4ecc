"""The model's parameters as subjects of rows, and the gradient hooks they carry while a step is captured.

Hooks are put on when a captured step begins and taken off when it ends, so a step that is not captured
runs none, and parameters that were frozen, unfrozen or replaced (`load_state_dict(assign=True)`) since
are found: 2 µs per parameter and captured step, against 6 µs per parameter in every step.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from torch import Tensor, nn
from torch.compiler import is_compiling

from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.depth import Key
from rankscope.probe.graph import Node, joined, own_parameters
from rankscope.probe.hooks import Guard, Hook
from rankscope.probe.rows import Subject
from rankscope.probe.tensors import PLAIN
from rankscope.probe.torch_inner import current_backward, is_fully_sharded, is_sole_hook, version_of
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


class Waiting:
    """Gradients of one backward that wait for its end, to be measured together.

    Args:
        backward: The engine's run.

    Attributes:
        backward: The same.
        arrived: Parameters, and the version of each one's gradient when it arrived.
    """

    __slots__ = ("arrived", "backward")

    def __init__(self, backward: int) -> None:
        self.backward = backward
        self.arrived: list[tuple[nn.Parameter, int]] = []


class _Accumulation(Hook):
    """The hook on a parameter.

    Between two matrix products the caches are cold: with a frame for each question it took 42 µs a parameter, and in
    this one, where the gradient may wait, 20. That they are measured together at the end, and not while they are in
    the last-level cache, is measured too: the kernel won 0 to 2 ms of 17, and each call of it cost 100 µs.
    """

    __slots__ = ()

    def __call__(self, *args: object) -> None:
        """Let the gradient wait where nobody rewrites it before backward ends: no other rank, no other hook."""
        owner = cast("Parameters | None", self._owner())
        waiting = None if owner is None or owner.guard.is_off or owner.guard.is_timed else owner.waiting
        parameter = cast("nn.Parameter", args[0])
        gradient = parameter.grad
        if (
            waiting is not None
            and gradient is not None
            and type(gradient) in PLAIN
            and current_backward() == waiting.backward
            and is_sole_hook(parameter)
            and not is_compiling()
            and not gradient.is_inference()
        ):
            waiting.arrived.append((parameter, gradient._version))
        else:
            super().__call__(parameter)


class Parameters:
    """The trainable parameters that the configuration wants.

    Args:
        nodes: The model's modules.
        configuration: Filters by path.
        guard: Of the watch.

    Attributes:
        are_fully_sharded: Whether data parallelism shards them, so that gradients arrive reduced.
        waiting: Takes gradients of the backward that runs; None: each is reported when it has been accumulated.
    """

    def __init__(self, nodes: Sequence[Node], configuration: CaptureConfiguration, *, guard: Guard) -> None:
        self._nodes = nodes
        self._configuration = configuration
        self.guard = guard
        self._subjects: dict[str, tuple[Subject, Subject]] = {}
        self._wanted: dict[str, bool] = {}
        self._is_partial = False
        self._by_id: dict[int, Tracked] = {}
        self._handles: list[RemovableHandle] = []
        self._accumulated: Callable[[Tracked], None] | None = None
        self.waiting: Waiting | None = None
        self.are_fully_sharded = any(is_fully_sharded(node.module) for node in nodes)

    def take(self, nodes: Sequence[Node]) -> None:
        """Report the parameters of these modules, from the next `arm` on: the model has changed."""
        self._nodes = nodes
        self._subjects = {}
        self.are_fully_sharded = any(is_fully_sharded(node.module) for node in nodes)

    def configure(self, configuration: CaptureConfiguration) -> None:
        """Report what another configuration wants, from the next `arm` on."""
        self._configuration = configuration
        self._wanted = {}

    @property
    def tracked(self) -> list[Tracked]:
        """The armed parameters, in declaration order."""
        return list(self._by_id.values())

    @property
    def is_armed(self) -> bool:
        """Whether gradients are reported now."""
        return self._accumulated is not None

    def arm(self, accumulated: Callable[[Tracked], None], keys: Collection[Key] | None = None) -> None:
        """Report each gradient when it has been accumulated, before any reduction.

        Args:
            accumulated: Told of it.
            keys: Only the parameters of these weights and gradients, whatever the filters say; None: all that the
                filters let through, also where only some were reported so far.
        """
        if self.is_armed and not self._is_partial:
            return
        self.disarm()
        self._accumulated = accumulated
        self._is_partial = keys is not None
        for tracked in self._trainable(keys):
            self._by_id.setdefault(id(tracked.parameter), tracked)
        hook = _Accumulation(self, Parameters._gradient_accumulated)
        self._handles = [tracked.parameter.register_post_accumulate_grad_hook(hook) for tracked in self._by_id.values()]

    @property
    def whole(self) -> list[Tracked]:
        """All that the filters let through, where all are armed; else none."""
        return [] if self._is_partial or not self.is_armed else self.tracked

    def disarm(self) -> None:
        """Take the hooks off."""
        self._accumulated = self.waiting = None
        self._by_id = {}
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _gradient_accumulated(self, parameter: nn.Parameter) -> None:
        tracked = self._by_id.get(id(parameter))
        if tracked is not None and self._accumulated is not None:
            self._accumulated(tracked)

    def waited(self) -> list[tuple[Tracked, Tensor]]:
        """Those that wait and have not been rewritten since, with their gradients; none waits any more."""
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return []
        by_id = self._by_id
        known = [(by_id.get(id(parameter)), parameter.grad, version) for parameter, version in waiting.arrived]
        return [
            (tracked, gradient)
            for tracked, gradient, version in known
            if tracked is not None and gradient is not None and version_of(gradient) == version
        ]

    def _trainable(self, keys: Collection[Key] | None) -> Iterator[Tracked]:
        names = None if keys is None else {name for name, _ in keys}
        for node in self._nodes:
            for name, parameter in own_parameters(node.module):
                path = joined(node.path, name)
                if parameter.requires_grad and (self._wants(path) if names is None else path in names):
                    yield Tracked(parameter, *self._subjects_of(node, path))

    def _wants(self, path: str) -> bool:
        wanted = self._wanted.get(path)
        if wanted is None:
            wanted = self._wanted[path] = self._configuration.wants(path)
        return wanted

    def _subjects_of(self, node: Node, path: str) -> tuple[Subject, Subject]:
        if path not in self._subjects:
            roles = [
                Subject(path, node.path, node.layer_index, str(node.layer_type), role) for role in (_WEIGHT, _GRAD)
            ]
            self._subjects[path] = roles[0], roles[1]
        return self._subjects[path]
