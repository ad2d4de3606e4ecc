"""What a probe tells of: statistics, spans, hits and gaps, and which of them somebody wants. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.errors import ConfigError
from rankscope_proto.names import GapCause, Phase, Role

Number = int | float
Seen = int | float | str | None
"""A value that a condition saw; None: the row has none."""

EVERYTHING_KEPT = 10_000
"""Events that wait for a subscriber who names no other number."""


@dataclass(frozen=True, slots=True)
class StatisticsEvent:
    """Statistics of one tensor.

    Attributes:
        time_ns: Wall clock when it was measured, ns since 1970-01-01 UTC.
        step: Optimizer step.
        microstep: Gradient-accumulation index inside it.
        phase: Phase that produced the tensor.
        node: Path of the tensor; an output has its index in brackets after the module's path.
        module: Path of the module it belongs to.
        role: What the tensor is.
        dtype: Element type, as torch names it.
        shape: Local shape.
        flags: Names of `TENSOR_FLAGS`.
        values: Statistics that were captured, by name; one that is not there was not captured or does not exist.
    """

    time_ns: int
    step: int
    microstep: int
    phase: Phase
    node: str
    module: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    flags: frozenset[str]
    values: Mapping[str, Number | tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A step, one of its phases, or another interval that has ended.

    Attributes:
        time_ns: Wall clock when it ended.
        step: Optimizer step it belongs to, if any.
        name: What it is called.
        phase: The phase, if it is one.
        duration_ns: How long it took.
    """

    time_ns: int
    step: int | None
    name: str
    phase: Phase | None
    duration_ns: int


@dataclass(frozen=True, slots=True)
class HitEvent:
    """One firing of a breakpoint.

    Attributes:
        time_ns: Wall clock when its condition was found true.
        step: Optimizer step of the row.
        microstep: Gradient-accumulation index inside it.
        breakpoint: Its name.
        node: Path of the tensor it fired on.
        module: Path of the module it belongs to.
        role: What the tensor is.
        count: Which hit of this breakpoint in this process, from 1.
        seen: What its condition saw, as a query writes it.
    """

    time_ns: int
    step: int
    microstep: int
    breakpoint: str
    node: str
    module: str
    role: Role
    count: int
    seen: Mapping[str, Seen]


@dataclass(frozen=True, slots=True)
class GapEvent:
    """Something that was not captured, or was not told.

    Attributes:
        time_ns: Wall clock from which it is missing.
        step: Optimizer step, if it is known.
        cause: Why.
        detail: In words.
        count: How many events, if it is known.
    """

    time_ns: int
    step: int | None
    cause: GapCause
    detail: str
    count: int | None


ProbeEvent = StatisticsEvent | SpanEvent | HitEvent | GapEvent
KINDS = (StatisticsEvent, SpanEvent, HitEvent, GapEvent)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a subscriber wants; what is left empty excludes nothing.

    Attributes:
        nodes: Paths or globs, as breakpoints and `capture` take them: of statistics and hits, those whose tensor, or
            its module, one of them names.
        roles: Of statistics and hits.
        kinds: Classes of events. Gaps of the subscription itself are always told.
        most_waiting: Events that wait for the subscriber at most, at least 1; what comes then is counted and dropped.
    """

    nodes: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    kinds: tuple[type[ProbeEvent], ...] = ()
    most_waiting: int = EVERYTHING_KEPT

    def __post_init__(self) -> None:
        for name in ("nodes", "roles", "kinds"):
            if not isinstance(getattr(self, name), tuple):
                raise ConfigError(f"{name} is {getattr(self, name)!r}; write a tuple, such as {name}=(…,)")
        for node in self.nodes:
            if not isinstance(node, str):  # pyright: ignore[reportUnnecessaryIsInstance]  a caller may not be checked
                raise ConfigError(f"nodes has {node!r}; write paths or globs")
        if wrong := [role for role in self.roles if role not in {*Role}]:
            raise ConfigError(f"roles has {wrong[0]!r}; a role is one of {', '.join(Role)}")
        if wrong := [kind for kind in self.kinds if kind not in KINDS]:
            told = ", ".join(kind.__name__ for kind in KINDS)
            raise ConfigError(f"kinds has {wrong[0]!r}; events are of the classes {told}")
        if type(self.most_waiting) is not int or self.most_waiting < 1:
            raise ConfigError(f"most_waiting={self.most_waiting} has room for no event; use at least 1")


EVERYTHING = EventFilter()
