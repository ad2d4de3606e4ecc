"""The first non-finite values of a run's processes, and the collectives through which they may have spread."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rankscope_query_api.values import RunKey


@dataclass(frozen=True, slots=True)
class FirstNonfinite:
    """The first tensor with non-finite values that one process saw, in the order in which it saw tensors.

    Attributes:
        rank: Global rank.
        incarnation: 32 hex digits.
        step: Optimizer step; None: outside any.
        microstep: Index inside it.
        phase: Code of a `Phase`.
        role: Code of a `Role`.
        name: The tensor.
        module: Module that it is of.
        layer_index: Number of its layer; None: of none.
        time_ns: When it was looked at, on the clock of its process.
        is_reduced: Whether it is a gradient after its reduction over ranks.
        nonfinite: How many of its values.
    """

    rank: int
    incarnation: str
    step: int | None
    microstep: int
    phase: int
    role: int
    name: str
    module: str
    layer_index: int | None
    time_ns: int
    is_reduced: bool
    nonfinite: int


@dataclass(frozen=True, slots=True)
class Passing:
    """One process in a collective, times on its own clock.

    Attributes:
        rank: Global rank.
        incarnation: 32 hex digits.
        entry_ns: When it entered.
        exit_ns: When it was over for it; None: not known.
    """

    rank: int
    incarnation: str
    entry_ns: int
    exit_ns: int | None


@dataclass(frozen=True, slots=True)
class Passage:
    """One collective with the processes that took part.

    Attributes:
        group: The process group.
        cseq: Number of the collective in it.
        op: Operation.
        step: Step that was open; None: none was.
        passings: Of each process that has a row of it.
    """

    group: str
    cseq: int
    op: str
    step: int | None
    passings: Sequence[Passing]


@dataclass(frozen=True, slots=True)
class Looked:
    """What was looked at before a tensor, by the same process.

    Attributes:
        activations: Outputs of modules in the same step that were looked at and finite.
        weights_step: Last step at which weights of its module were looked at and finite; None: none.
    """

    activations: int
    weights_step: int | None


class NonfiniteReader(Protocol):
    """Where non-finite values came up, and how they may have spread."""

    async def firsts(self, key: RunKey, launch: str, *, first: int) -> Sequence[FirstNonfinite]:
        """The first tensor of each trainer, by rank: from step `first` on (-1: from all), but not of a skipped step."""
        ...

    async def passages(self, key: RunKey, launch: str, *, of: Sequence[FirstNonfinite]) -> Sequence[Passage]:
        """The collectives over which these may have spread, by (group, number): those of their steps, and between."""
        ...

    async def looked(self, key: RunKey, launch: str, *, at: FirstNonfinite) -> Looked:
        """What the same process looked at before it, in its step."""
        ...
