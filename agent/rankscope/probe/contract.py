"""What every source of live data offers, whatever it is: a model in this process, a recording, a serving engine.

Four verbs: `describe` what can be captured, `subscribe` to what is, `capture` values that are asked for, and
`set_breakpoint`. `configure` gives the source another capture configuration. A program written against these
types runs on every source; `tests/agent/probe/contract.py` is the test that each of them passes. Nothing
here imports torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from rankscope.probe.configuration import CaptureConfiguration, Trigger, Values
from rankscope.probe.events import EVERYTHING, EventFilter, HitEvent, ProbeEvent
from rankscope_proto.names import LayerType, Role

WHOLE = Values()


class NodeKind(StrEnum):
    """What a node of the model graph is."""

    MODULE = "module"
    LAYER = "layer"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node of the model graph.

    Attributes:
        path: As a person wrote it, without what wrappers insert.
        kind: A module, a layer (a numbered repeated block), or a tensor (a parameter).
        parent: Path of the module it belongs to; None: it is the model.
        class_name: Class of the module; of a tensor, of its module.
        type: Semantic type.
        layer_index: Number of the nearest enclosing layer, if any.
        shape: Of a tensor: its local shape; of a module: ().
        dtype: Of a tensor: its element type, as torch names it; of a module: "".
        aliases: Other paths of the same module or tensor (tied weights).
        roles: Roles in which rows of this node can be captured.
    """

    path: str
    kind: NodeKind
    parent: str | None
    class_name: str
    type: LayerType
    layer_index: int | None
    shape: tuple[int, ...]
    dtype: str
    aliases: tuple[str, ...]
    roles: tuple[Role, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """What can be captured here.

    Attributes:
        source: What the data comes from: `local`, or another word of the source's own.
        nodes: The model graph, parents before children.
        roles: Roles that the source knows.
        statistics: For each level, the statistics that its rows may have, by their names in `tensor_stats`.
        levels: Levels that can be configured.
        can_pause: Whether a precise breakpoint holds the source until it has been judged.
        limits: What cannot be captured, in sentences.
    """

    source: str
    nodes: tuple[NodeInfo, ...]
    roles: tuple[Role, ...]
    statistics: Mapping[int, tuple[str, ...]]
    levels: tuple[int, ...]
    can_pause: bool
    limits: tuple[str, ...]

    def node(self, path: str) -> NodeInfo:
        """The node at a path.

        Raises:
            KeyError: There is none.
        """
        for node in self.nodes:
            if node.path == path:
                return node
        raise KeyError(path)


class Subscription(Protocol):
    """Events in order of time, each once, to be iterated over in a thread of the subscriber's own.

    The source never waits for a subscriber: what finds no room is counted and told as a gap `ring_full`.
    """

    def __iter__(self) -> Self: ...

    def __next__(self) -> ProbeEvent:
        """Wait for the next event; the iteration ends when the source or the subscription is closed."""
        ...

    def drain(self) -> list[ProbeEvent]:
        """The events that wait now; never waits itself, so that the training thread may call it."""
        ...

    def close(self) -> None:
        """Take no more events; those that wait are still iterated over."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


class CapturedTensor(Protocol):
    """Kept values of one tensor."""

    @property
    def name(self) -> str:
        """Path of the tensor."""
        ...

    @property
    def role(self) -> Role:
        """What the tensor is."""
        ...

    @property
    def step(self) -> int:
        """Optimizer step in which it was captured."""
        ...

    @property
    def microstep(self) -> int:
        """Gradient-accumulation index inside it."""
        ...

    @property
    def dtype(self) -> str:
        """Element type, as torch names it."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the kept values."""
        ...

    def digest(self) -> str:
        """BLAKE2b-128 of the kept bytes, 32 hexadecimal digits."""
        ...

    def values(self) -> object:
        """The values, as the source has them: a tensor on the host, or an array."""
        ...


class CaptureHandle(Protocol):
    """A capture that was asked for."""

    @property
    def is_done(self) -> bool:
        """Whether it is over: the tensors are there, or there is a reason why not."""
        ...

    @property
    def reason(self) -> str:
        """Why nothing was kept; "" while it is not over, and where something was."""
        ...

    def result(self, timeout_s: float | None = None) -> tuple[CapturedTensor, ...]:
        """Wait for the captured tensors; not to be called by the thread that trains, before the step has ended.

        Args:
            timeout_s: Seconds to wait at most; None: until the source ends.

        Raises:
            NotCaptured: Nothing was kept, or the time is over; says why.
        """
        ...


class Breakpoint(Protocol):
    """A condition on nodes that is judged while the source runs."""

    @property
    def name(self) -> str:
        """What it is called in the run's data."""
        ...

    @property
    def trigger(self) -> Trigger:
        """As it was asked for."""
        ...

    @property
    def hits(self) -> int:
        """Hits that counted, those before `ignore` left out."""
        ...

    @property
    def failures(self) -> int:
        """How often its callback raised."""
        ...

    @property
    def is_enabled(self) -> bool:
        """Whether it is judged now."""
        ...

    @property
    def is_removed(self) -> bool:
        """Whether it is gone for good: removed, fired with `once`, or the source has ended."""
        ...

    def enable(self) -> None:
        """Judge it again; functions that look back begin where they stopped."""
        ...

    def disable(self) -> None:
        """Judge it no more until it is enabled."""
        ...

    def remove(self) -> None:
        """Take it away. Again: nothing happens."""
        ...


OnHit = Callable[[HitEvent], object]
"""Called with a hit, in the thread that trains; what it raises is counted and does not reach training."""


class RuntimeProbe(Protocol):
    """A source of live data."""

    def describe(self) -> Description:
        """What can be captured."""
        ...

    def subscribe(self, wanted: EventFilter = EVERYTHING) -> Subscription:
        """Events from now on.

        Raises:
            ConfigError: The filter names nodes that there are not.
        """
        ...

    def capture(
        self, nodes: Sequence[str], *, roles: Sequence[Role] = (), values: Values = WHOLE, step: int | None = None
    ) -> CaptureHandle:
        """Keep values of nodes, once.

        Args:
            nodes: Paths or globs of modules and tensors.
            roles: In which roles; empty: every role that the nodes have.
            values: Which elements.
            step: In which step; None: the next one that begins.

        Raises:
            ConfigError: No node is so called; names the nearest.
        """
        ...

    def set_breakpoint(self, trigger: Trigger, *, callback: OnHit | None = None) -> Breakpoint:
        """Judge a condition from the next step that begins.

        Raises:
            ConfigError: No node is so called, or the predicate cannot be judged or can never hold there; says why.
        """
        ...

    def configure(self, configuration: CaptureConfiguration, *, from_step: int | None = None) -> None:
        """Capture by another configuration; its triggers take the place of those of the one before.

        Args:
            configuration: What to capture.
            from_step: From this step on, the same on every rank; None: from the next one that begins.

        Raises:
            ConfigError: It asks for what cannot be.
        """
        ...
