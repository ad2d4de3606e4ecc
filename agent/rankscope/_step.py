"""Training steps, their phases, and the modules that ran in them.

A step's trace has one id on all ranks, so that the steps of all ranks make one tree. Phases are
opened by hand (`with step.phase("forward")`) or by hooks (`begin_phase`, `end_phase`); of the
automatic ones at most one is open, and none while one by hand is.
"""

from bisect import bisect_right
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rankscope._checked import whole_number
from rankscope._span import Span
from rankscope_proto.identity import step_trace_id
from rankscope_proto.names import SPAN_FLAGS, Phase

if TYPE_CHECKING:
    from contextvars import Token

    from rankscope._recording import Recording

MAX_MICROSTEP = 2**32 - 1
MOST_MARKS = 4_096
"""Begins and ends of phases that a step remembers."""

SYSTEM = "system"
IN_STEP_TRACE = SPAN_FLAGS["in_step_trace"]
_time_of = itemgetter(0)


class StepListener(Protocol):
    """Who wants to know of steps. It is called in the training thread and must be quick."""

    def step_started(self, step: "Step", /) -> object:
        """A step began; it is current."""
        ...

    def step_ended(self, step: "Step", /) -> object:
        """A step ended; its time is taken already, and it is not current."""
        ...

    def run_finishing(self) -> object:
        """The run ends: hand over now what is still held."""
        ...


class LossListener(Protocol):
    """Who wants to see the loss before backward runs."""

    def __call__(self, step: "Step", loss: object, /) -> object:
        """The training named its loss tensor."""
        ...


class Step(Span):
    """One training step on this rank, or one microstep of it; made by `run.step`.

    It is the root of the step's trace: spans made inside it are its children.
    """

    __slots__ = ("_automatic", "_by_hand", "_entered", "_marks", "_modules", "index", "inner")

    is_essential = True

    def __init__(self, recording: "Recording", index: int, *, microstep: int) -> None:
        super().__init__(recording, "step", SYSTEM, None)
        self._automatic: AutomaticPhase | None = None
        self.inner = None
        self.index = index
        scope = self.own_scope()
        scope.at_step, scope.microstep, scope.flags = index, microstep, IN_STEP_TRACE
        identity = recording.identity
        upper, lower = step_trace_id(identity.run_id, identity.launch_id, index)
        self.trace = upper << 64 | lower
        self._by_hand = 0
        self._marks: list[tuple[int, int]] = []
        self._modules: list[ModuleSpan] = []
        self._entered: Token[Step | None] | None = None

    @property
    def step(self) -> int:
        """The step's number, 0-based."""
        return self.index

    def __enter__(self) -> Self:
        recording = self._recording
        note = recording.take_input_note()
        super().__enter__()
        if note is not None:
            self.start_mono_ns = note[0]
            AutomaticPhase(self, Phase.INPUT).finished(*note)
        self._entered = recording.enter_step(self)
        recording.tell_started(self)
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self._end_automatic(self._recording.mono_ns())
        super().__exit__(error_class, error, traceback)
        token, self._entered = self._entered, None
        self._recording.leave_step(self, token)
        self._recording.tell_ended(self)

    def phase(self, name: str, *, microbatch: int | None = None) -> "PhaseSpan":
        """A phase opened by hand: a context manager, a child of the step.

        Args:
            name: input, forward, backward, optimizer or other.
            microbatch: Which microbatch of a pipeline it is for, from 0: those of a phase, and what runs in each, are
                told apart in the tree of the step. None: there is no pipeline.

        Raises:
            ValueError: `name` is not a phase, or the microbatch no whole number from 0 to 2**32 - 1.
        """
        try:
            phase = Phase(name)
        except ValueError:
            raise ValueError(f"a phase is one of {', '.join(Phase)}, not {name!r}") from None
        return PhaseSpan(self, phase, microbatch=None if microbatch is None else checked_microbatch(microbatch))

    def begin_phase(self, phase: Phase) -> None:
        """Open a phase from a hook; ends another automatic one, changes nothing when open already."""
        if self._by_hand or self.status or self._is_open_phase(phase):
            return
        span = AutomaticPhase(self, phase).start()
        self._end_automatic(span.start_mono_ns)
        self._mark(span.start_mono_ns, phase.code)
        self.inner = self._automatic = span

    def end_phase(self, phase: Phase) -> None:
        """Close a phase from a hook; changes nothing when it is not open."""
        if self._is_open_phase(phase):
            self._end_automatic(self._recording.mono_ns())

    def begin_module(self, path: str) -> None:
        """Open the span of a module's call from a hook, inside the module, the phase or else the span that is open."""
        if self.status:
            return
        current = self._recording.current.get()
        is_inside = isinstance(current, PhaseSpan) and current.is_of(self)
        span = ModuleSpan(self._recording, path, SYSTEM, self.inner or (current if is_inside else self)).start()
        self._modules.append(span)
        self.inner = span

    def end_module(self, path: str) -> None:
        """Close it, and those inside it that an exception left open; changes nothing when it is not open."""
        if any(span.name == path for span in self._modules):
            now_ns = self._recording.mono_ns()
            while self._end_innermost(now_ns) != path:
                continue

    def _end_innermost(self, now_ns: int) -> str:
        span = self._modules.pop()
        span.end_at(now_ns)
        self.inner = self._modules[-1] if self._modules else self._automatic
        return span.name

    def phase_at(self, mono_ns: int) -> int:
        """Code of the phase that was open at a monotonic time in it; 0: none, or too many have been."""
        marks = self._marks
        place = bisect_right(marks, mono_ns, key=_time_of)
        return marks[place - 1][1] if 0 < place < MOST_MARKS else 0

    def loss(self, tensor: object) -> None:
        """Name the step's loss, before `backward` is called on it."""
        self._recording.tell_loss(self, tensor)

    def hand_phases(self, change: int, now_ns: int, *, code: int = 0) -> None:
        """A phase by hand, of that code, was opened (+1), or one was closed (-1)."""
        self._by_hand += change
        self._end_automatic(now_ns)
        self._mark(now_ns, code)

    def _is_open_phase(self, phase: Phase) -> bool:
        return self._automatic is not None and self._automatic.phase_code == phase.code

    def _end_automatic(self, now_ns: int) -> None:
        while self._modules:
            self._end_innermost(now_ns)
        span, self.inner, self._automatic = self._automatic, None, None
        if span is not None:
            span.end_at(now_ns)
            self._mark(now_ns, 0)

    def _mark(self, now_ns: int, code: int) -> None:
        # Times and codes alone: a phase knows its step, so a step that kept its phases were freed by a collection only.
        if len(self._marks) < MOST_MARKS:
            self._marks.append((now_ns, code))


class AutomaticPhase(Span):
    """A phase of a step that a hook opened."""

    __slots__ = ("phase_code",)

    is_essential = True

    def __init__(self, step: Step, phase: Phase) -> None:
        super().__init__(step.recording, phase.value, SYSTEM, step)
        self.phase_code = phase.code


class ModuleSpan(Span):
    """One call of a module in a step's forward, named by the module's path."""

    __slots__ = ()

    phase_code = Phase.FORWARD.code


class PhaseSpan(Span):
    """A phase of a step opened by hand; automatic phases wait until it is closed."""

    __slots__ = ("_step", "phase_code")

    is_essential = True

    def __init__(self, step: Step, phase: Phase, *, microbatch: int | None = None) -> None:
        super().__init__(step.recording, phase.value, SYSTEM, step)
        self.phase_code = phase.code
        self._step = step
        if microbatch is not None:
            self.own_scope().microbatch = microbatch

    def is_of(self, step: Step) -> bool:
        """Whether it is a phase of that step."""
        return self._step is step

    def __enter__(self) -> Self:
        super().__enter__()
        self._step.hand_phases(1, self.start_mono_ns, code=self.phase_code)
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        super().__exit__(error_class, error, traceback)
        self._step.hand_phases(-1, self.end_mono_ns)


def checked_microstep(microstep: object) -> int:
    """The microstep as an int.

    Raises:
        ValueError: not a whole number from 0 to 2**32 - 1.
    """
    return _index(microstep, "microstep")


def checked_microbatch(microbatch: object) -> int:
    """The microbatch as an int.

    Raises:
        ValueError: not a whole number from 0 to 2**32 - 1.
    """
    return _index(microbatch, "microbatch")


def _index(value: object, what: str) -> int:
    number = whole_number(value)
    if number is None or not 0 <= number <= MAX_MICROSTEP:
        raise ValueError(f"a {what} is a whole number from 0 to 2**32 - 1, not {value!r}")
    return number
