"""What the rows of one step come to before they are a tree, as plain values, and who reads them from a store.

They are by path and hold a list over the ranks: 1,024 ranks with 60 paths are 60 values of 1,024 numbers each, which
are read in a quarter of the time that 61,440 rows take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rankscope_query_api.values import RunKey


@dataclass(frozen=True, slots=True)
class PathTotals:
    """What the ranks did at one path within a step; the lists are as long as `ranks`, in its order.

    Attributes:
        path: Names from the root, joined by '/'.
        name: Last name of the path, unescaped.
        microbatch: Microbatch of a pipeline; None: none.
        kind: Code of a `SpanKind`.
        phase: Code of a `Phase`; 0: none.
        ranks: Global ranks, in no order; one is there for each of its processes that has spans here.
        processes: Numbers of these processes.
        counts: Spans there, each counted once.
        copies: Rows there; more than of `counts` where a span is stored twice.
        errors: Spans that ended in an error.
        durations_ns: Sums of their durations; may be negative where a clock lied.
        starts_ns: Earliest starts, by the processes' own clocks.
    """

    path: str
    name: str
    microbatch: int | None
    kind: int
    phase: int
    ranks: Sequence[int]
    processes: Sequence[int]
    counts: Sequence[int]
    copies: Sequence[int]
    errors: Sequence[int]
    durations_ns: Sequence[int]
    starts_ns: Sequence[int]


@dataclass(frozen=True, slots=True)
class StepProcess:
    """A process that has spans of a step.

    Attributes:
        incarnation: 32 hex digits.
        number: What stands for it in `PathTotals`.
        rank: Global rank.
        node: Host name.
        spans: Spans it has there.
        rows: Rows that these are; more than `spans` where one is stored twice.
        roots: Rows of the step itself; 0: it worked for the rank's trainer.
        start_ns: Its first start, by its own clock.
    """

    incarnation: str
    number: int
    rank: int
    node: str
    spans: int
    rows: int
    roots: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class ClockShift:
    """What is added to the times of one process.

    Attributes:
        incarnation: The process, 32 hex digits.
        offset_ns: Added to its wall clock.
        error_ns: Bound of the error then, either way; None: its clock was not measured.
        clock: Which clock it is: processes of one clock are ordered whatever its error.
    """

    incarnation: str
    offset_ns: int
    error_ns: int | None
    clock: str


@dataclass(frozen=True, slots=True)
class EdgeFaults:
    """Edges at one path of a step that make no proper tree.

    Attributes:
        path: Names from the root, joined by '/'.
        microbatch: Microbatch of a pipeline; None: none.
        orphans: Spans that name a parent that is not stored.
        late: Spans that begin before their parent or end after it, by more than the clocks' error.
    """

    path: str
    microbatch: int | None
    orphans: int
    late: int


@dataclass(frozen=True, slots=True)
class HeardRank:
    """A trainer of a run, as far as it was heard.

    Attributes:
        launch_id: 32 hex digits.
        rank: Global rank.
        incarnation: 32 hex digits.
        silent_ns: Time since its last batch was received.
        ended: Whether it said its last word.
        is_gone: Whether its node's agent said that it is gone without one.
    """

    launch_id: str
    rank: int
    incarnation: str
    silent_ns: int
    ended: bool
    is_gone: bool


@dataclass(frozen=True, slots=True)
class StepCharges:
    """Time that others waited for a rank in collectives of a step, in ns.

    Attributes:
        by_rank: All that a rank is charged with.
        by_path: The part of it whose cause is a path of the tree, by rank.
        received_ns: Waits that only passed on what came from a collective before.
        uncertain_ns: Waits for somebody, of whom it is not known who it was.
    """

    by_rank: Mapping[int, int] = field(default_factory=dict[int, int])
    by_path: Mapping[str, Mapping[int, int]] = field(default_factory=dict[str, Mapping[int, int]])
    received_ns: int = 0
    uncertain_ns: int = 0


class StepTreeReader(Protocol):
    """What the rows of a step's trace come to; `store` says what holds for every reader."""

    async def processes(self, key: RunKey, launch: str, *, step: int) -> Sequence[StepProcess]:
        """The processes that have spans of the step, by (rank, incarnation)."""
        ...

    async def paths(self, key: RunKey, launch: str, *, step: int, has_copies: bool) -> Sequence[PathTotals]:
        """What the ranks did at each path, by (path, microbatch).

        Args:
            key: The run.
            launch: 32 hex digits.
            step: The step.
            has_copies: Whether spans are stored more than once: to see that they are not saves half of the time.
        """
        ...

    async def edges(self, key: RunKey, launch: str, *, step: int, shifts: Sequence[ClockShift]) -> Sequence[EdgeFaults]:
        """The paths that have faulty edges, by (path, microbatch).

        Between processes whose clocks are not known to one another no span is late.
        """
        ...

    async def coordinates(self, key: RunKey, launch: str, *, axis: str) -> Mapping[int, int]:
        """The coordinate of each rank of a launch on an axis of its mesh; a rank that did not say it is not there."""
        ...

    async def axes(self, key: RunKey, launch: str) -> Sequence[str]:
        """The axes of the launch's mesh, by name."""
        ...

    async def heard(self, key: RunKey) -> Sequence[HeardRank]:
        """The trainers of the run, by (launch, rank, incarnation)."""
        ...

    async def causes(self, key: RunKey, launch: str, *, step: int) -> Mapping[int, str]:
        """What is stated to be missing of the spans of a launch's step, by rank, in words.

        That the end of a process is not known says nothing about a step.
        """
        ...

    async def with_later_steps(self, key: RunKey, launch: str, *, step: int, ranks: Sequence[int]) -> frozenset[int]:
        """Those of these ranks that have one of the 1,000 steps behind a step."""
        ...
