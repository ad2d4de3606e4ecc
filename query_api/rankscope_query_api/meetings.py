"""Collectives over their ranks, summed up by the store: plain values, like `values`.

A *meeting* is one collective of one process group: ranks arrive, and nobody leaves before the last one has come. A
rank is *freed* when the collective before was over for it, or, within a step, when it had put that one off into the
background: what is between is its own time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

UNMEASURED = -1
"""An error of a clock that was never measured."""


OF_ONE_SIZE = (
    *("all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "all_gather_into_tensor", "all_gather_single"),
    *("reduce_scatter_tensor", "reduce_scatter_single"),
)
"""Operations whose inputs are equally large on all ranks: others may take another size on each, or on one."""


class Clocks(Protocol):
    """How far the clocks of a launch's processes are from the server's."""

    def at(self, incarnation: str, wall_ns: int) -> tuple[int, int] | None:
        """What is added to the process's wall clock then, and the bound of its error, in ns; None: not measured."""
        ...


@dataclass(frozen=True, slots=True)
class Member:
    """A trainer process of a launch.

    Attributes:
        incarnation: 32 hex digits.
        rank: Global rank.
        node: Host name.
        mesh: Its coordinate on each axis of the mesh.
        heard_ns: When its last batch was received, by the receiver's clock.
    """

    incarnation: str
    rank: int
    node: str
    mesh: Mapping[str, int]
    heard_ns: int


@dataclass(frozen=True, slots=True)
class StepReach:
    """The collectives of one step.

    Attributes:
        step: The step; -1: those outside any step.
        arrivals: Rows that are read of it, calls between two ranks among them.
        matches: Different collectives.
        enqueued: Rows of these whose times are those of putting work into a device's queue.
    """

    step: int
    arrivals: int
    matches: int
    enqueued: int


@dataclass(frozen=True, slots=True)
class Window:
    """Which collectives are looked at.

    Attributes:
        launch: Launch id, 32 hex digits.
        first: The first step.
        last: The last step.
        with_outside: Whether those outside any step are looked at, too.
    """

    launch: str
    first: int
    last: int
    with_outside: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A process, who it is judged with, and its clock as a line over the window.

    Attributes:
        incarnation: 32 hex digits.
        rank: Global rank.
        key: Number of the rank, node or coordinate that it is counted for.
        begin_ns: Its first entry in the window, by its own clock.
        offset_ns: What is added to its clock then.
        slope: How much that grows, in ns a ns.
        error_ns: Bound of the error in the whole window; `UNMEASURED`.
        clock: Number of the clock that told its times: between those of one clock there is no error.
    """

    incarnation: str
    rank: int
    key: int
    begin_ns: int
    offset_ns: int
    slope: float
    error_ns: int
    clock: int


@dataclass(frozen=True, slots=True)
class Stay:
    """What one rank did of its own before a collective, by its own clock.

    Attributes:
        incarnation: Its process, 32 hex digits.
        rank: Global rank.
        freed_ns: When the collective before was over for it; 0: none is known.
        entry_ns: When it entered.
    """

    incarnation: str
    rank: int
    freed_ns: int
    entry_ns: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective over its ranks.

    Attributes:
        group: Name of the process group.
        group_ranks: Its ranks as text, `0-3,8`; "": unknown.
        cseq: Number of the collective in its group.
        step: Least step that a rank had open; None: none had.
        op: Operation.
        arrivals: Rows.
        ranks: Different ranks among them.
        processes: Different processes among them.
        ops: Different operations, as the calls named them.
        sizes: Most different sizes of input that one source tells.
        unmeasured: Arrivals of processes whose clock was never measured; 0 where one clock told all of them.
        at_ns: When the last one came, by the server's clock.
        key: Whom the last one is counted for.
        last: The last one to come.
        peer: The one in the middle of those that are counted for others than the last.
        others: How many those are.
        wait_ns: Sum of their waits for the last one.
        received_ns: The part of it by which the last one had been freed later than they.
        margin_ns: How much later the last one came than any of them, beyond what the clocks may err; negative: who
            was last is not known.
        spread_ns: How much later the last of the others came than the one in the middle.
        transfer_ns: How long after the last one came it was over for all; -1: not every end was told.
        stay_ns: Sum of what ranks stayed in it longer than the one that stayed least, by their own clocks; -1: not
            every end of it was told.
    """

    group: str
    group_ranks: str
    cseq: int
    step: int | None
    op: str
    arrivals: int
    ranks: int
    processes: int
    ops: int
    sizes: int
    unmeasured: int
    at_ns: int
    key: int
    last: Stay
    peer: Stay | None
    others: int
    wait_ns: int
    received_ns: int
    margin_ns: int
    spread_ns: int
    transfer_ns: int
    stay_ns: int


@dataclass(frozen=True, slots=True)
class OwnSpan:
    """A span of what a rank does itself.

    Attributes:
        incarnation: Its process, 32 hex digits.
        cause: What time in it is spent on, a word of `ranks.charges.CAUSES`.
        start_ns: By the process's own clock.
        end_ns: The same.
    """

    incarnation: str
    cause: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class CollectiveFilter:
    """Which rows of `collectives` are meant; a None does not restrict."""

    launch: str | None = None
    step: int | None = None
    group: str | None = None
    cseq: int | None = None
    rank: int | None = None


Matched = Sequence[tuple[str, str, int]]
"""Collectives by (group, its ranks, number)."""
