"""What the probe needs of the run it records into: small protocols, owned here because they are used here.

The run's own classes satisfy them without importing this package, so that `import rankscope` stays
free of torch, and the probe can be tried on a recording of ten lines.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from rankscope._block import Block
from rankscope._kept_values import KeptValues
from rankscope.probe.depth import Depth, Key
from rankscope_proto.names import Phase

if TYPE_CHECKING:
    from torch import Tensor

    from rankscope.probe.rows import Row


class Clock(Protocol):
    """The two clocks of a run."""

    def wall_ns(self) -> int:
        """Wall clock, ns since 1970-01-01 UTC."""
        ...

    def mono_ns(self) -> int:
        """Monotonic clock, ns; its zero means nothing."""
        ...

    def wall_at(self, mono_ns: int, /) -> int:
        """The wall time of a monotonic time, ns since 1970-01-01 UTC."""
        ...


class OpenStep(Protocol):
    """A training step between its start and its end."""

    @property
    def step(self) -> int:
        """Optimizer step, 0-based."""
        ...

    @property
    def microstep(self) -> int:
        """Gradient-accumulation index inside the step, 0-based."""
        ...

    def begin_phase(self, phase: Phase, /) -> object:
        """Open a phase; ends any other open automatic phase. Again while it is open: nothing happens."""
        ...

    def end_phase(self, phase: Phase, /) -> object:
        """Close a phase. Nothing happens if it is not open."""
        ...

    def begin_module(self, path: str, /) -> object:
        """Open the span of a module's call, inside those that are open."""
        ...

    def end_module(self, path: str, /) -> object:
        """Close it, and what was left open inside it. Nothing happens if it is not open."""
        ...


class StepListener(Protocol):
    """Told when steps begin and end, in the training thread."""

    def step_started(self, step: OpenStep, /) -> object:
        """A step began."""
        ...

    def step_ended(self, step: OpenStep, /) -> object:
        """A step ended."""
        ...

    def run_finishing(self) -> object:
        """The run ends: rows that are still held, on a device for one, are handed over now or never."""
        ...


class LossListener(Protocol):
    """Told which tensor is the loss, before backward runs."""

    def __call__(self, step: OpenStep, loss: object, /) -> object:
        """Training named its loss."""
        ...


class Recording(Protocol):
    """Where rows go, and what the run is doing now."""

    @property
    def armed(self) -> bool:
        """Whether anything is recorded; False in a forked child and after the end."""
        ...

    @property
    def clock(self) -> Clock:
        """The clocks that every row of the run is stamped with."""
        ...

    def append(self, item: Block | KeptValues, /) -> object:
        """Take rows; never blocks, never raises."""
        ...

    def add_step_listener(self, listener: StepListener, /) -> object:
        """Tell `listener` of every step from now on."""
        ...

    def remove_step_listener(self, listener: StepListener, /) -> object:
        """Tell `listener` nothing any more."""
        ...

    def add_loss_listener(self, listener: LossListener, /) -> object:
        """Call `listener` whenever training names its loss."""
        ...

    def remove_loss_listener(self, listener: LossListener, /) -> object:
        """Tell `listener` nothing any more."""
        ...

    def add_row_listener(self, listener: Callable[[object], object], /) -> object:
        """Call `listener` with whatever is appended from now on, spans too, in the thread that appends it."""
        ...

    def remove_row_listener(self, listener: Callable[[object], object], /) -> object:
        """Tell `listener` nothing any more."""
        ...

    def note_input(self, start_wall_ns: int, start_mono_ns: int, /) -> object:
        """A fetch began then, outside any step; the next step adopts it as its input phase."""
        ...


class Observer(Protocol):
    """Who looks at rows beside the recording: subscriptions, breakpoints, captures that were asked for.

    It is called in the training thread and must be quick. What it raises counts as the watch's own failure, but
    for `rankscope._root_error.Deliberate`, which goes through to the training.
    """

    def raised(self, step: int, /) -> Mapping[Key, Depth]:
        """What to look at more closely in a step that begins, beyond the configuration.

        Returns:
            The same object as before while nothing has changed: hooks are only seen to where it is another.
        """
        ...

    def precise(self, key: Key, /) -> bool:
        """Whether `measured` is to be called for a tensor, one of `raised`, before training goes on."""
        ...

    def measured(self, row: "Row", values: "Tensor", /) -> object:
        """A tensor was measured that is precise, or whose values are asked for.

        Args:
            row: Its row; if it is precise its numbers are known, on a device too.
            values: The tensor itself, as the hook was handed it. Copy what is kept.
        """
        ...

    def settled(self, rows: "Sequence[Row]", /) -> object:
        """A step ended: the rows whose numbers have become known since the last, in order of time; may be none."""
        ...

    def closed(self) -> object:
        """The watch has come off: nothing is measured any more."""
        ...
