"""What goes wrong in a training of the fault suite, as its ranks and its tests both understand it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

RANKS = 4
"""World size of every training here."""

BLOCKS = 4
"""Blocks of the trained network: `blocks.0` to `blocks.3`."""

COUNTS = 1000
"""Elements of the two collectives that the training loop itself does in each step, where nothing else is said."""


NODE = "TEST_NODE"
"""Variable that names the network namespace of a rank; empty: the machine's own."""


class Kind(StrEnum):
    """What a rank does wrong at a step."""

    SLOW_INPUT = "slow_input"
    """Its dataset answers late."""

    OVERFLOW = "overflow"
    """One block's values leave the range of float32."""

    SKIP = "skip"
    """It leaves out the loop's all-reduce and writes a report instead, for ever."""

    REORDER = "reorder"
    """It broadcasts before it reduces; the others do it the other way round."""

    SIZE = "size"
    """It reduces one element less than the others."""

    STOP = "stop"
    """SIGSTOP: it stands still, but lives."""

    KILL = "kill"
    """SIGKILL."""

    LINK = "link"
    """The link between the nodes is slow from here on; whoever looks on makes it so."""

    RAISE = "raise"
    """An error of its own code."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one rank.

    Attributes:
        kind: What goes wrong.
        rank: On which rank.
        step: First step that has it.
        until: First step after the last one that may have it; 0: the first one only.
        every: It comes each so many steps.
        ms: How long, where it is a delay.
        block: Number of the block, where it is in one.
    """

    kind: Kind
    rank: int
    step: int
    until: int = 0
    every: int = 1
    ms: int = 0
    block: int = 0

    def is_due(self, rank: int, step: int) -> bool:
        """Whether it happens on this rank at this step."""
        until = self.until or self.step + 1
        return rank == self.rank and self.step <= step < until and (step - self.step) % self.every == 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A training.

    Attributes:
        steps: How many steps it has, where nothing ends it before.
        faults: What goes wrong in it.
        counts: Elements of the collectives of the loop itself.
        gate: File without which no rank begins the step of the first fault: who looks on is ready then; "": none.
    """

    steps: int
    faults: tuple[Fault, ...] = field(default=())
    counts: int = COUNTS
    gate: str = ""

    def is_gated(self, step: int) -> bool:
        """Whether this step waits for the gate."""
        return bool(self.gate) and step == min(fault.step for fault in self.faults)

    def due(self, kind: Kind, rank: int, step: int) -> Fault | None:
        """The fault of a kind that happens on this rank at this step."""
        found = (fault for fault in self.faults if fault.kind is kind and fault.is_due(rank, step))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be trained.

    Attributes:
        name: Names the ranks' logs.
        environs: Each rank's whole environment.
        plan: The training.
        program: Module and arguments of another program that trains, in its place.
    """

    name: str
    environs: tuple[Mapping[str, str], ...]
    plan: Plan
    program: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """A rank that has ended: its process id, its exit status (negative: the signal)."""

    pid: int
    status: int
