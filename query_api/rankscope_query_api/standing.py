"""Where processes stand, as the agent process of their node saw them from outside; values and their reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rankscope_query_api.values import RunKey

State = Literal["running", "waiting", "stopped", "stuck", "dead", "ended"]
"""running: it runs Python code; waiting: in a collective; stopped: by a signal; stuck: no Python code runs; dead: gone
without its last word; ended: with it."""


@dataclass(frozen=True, slots=True)
class InGroup:
    """Where a process stands in one process group.

    Attributes:
        group: The group.
        enqueued: Number of the last collective that it entered; 0: none.
        completed: Number of the last one that was over.
        op: Operation of the last one entered; "": not known.
        shape: Shapes of its input, as 64x64;64; "": not known.
    """

    group: str
    enqueued: int
    completed: int
    op: str = ""
    shape: str = ""

    @property
    def is_under_way(self) -> bool:
        """Whether a collective that was entered is not over."""
        return self.enqueued > self.completed


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one process stands.

    Attributes:
        rank: Global rank.
        incarnation: 32 hex digits.
        node: Host name.
        state: What it does.
        heard_ns: When its agent's last row about it came, on the store's clock, ns since the epoch.
        since_ns: Since when it has made no progress, or given no sign of life, on the same clock; None: it does.
        step: The step it began last; None: none.
        phase: Code of the phase that is open; 0: none.
        groups: Where it stands in each group that it is in.
        stack: Frames of its threads (JSON), innermost first; "": not taken.
        died_ns: When it was first seen dead, on the same clock; None: it was not.
    """

    rank: int
    incarnation: str
    node: str
    state: State
    heard_ns: int
    since_ns: int | None
    step: int | None
    phase: int
    groups: Sequence[InGroup] = ()
    stack: str = ""
    died_ns: int | None = None

    def in_group(self, name: str) -> InGroup:
        """Where it stands in a group; one that it has entered nothing in: at the beginning."""
        return next((one for one in self.groups if one.group == name), InGroup(name, 0, 0))


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """What the recorded collectives say of a process group.

    Attributes:
        name: Its name.
        ranks: Its ranks; empty: not known.
        usual_gap_ns: Median time from one collective of a rank to its next; 0: not known.
        longest_gap_ns: The longest such time of late, two outliers left out; 0: not known.
    """

    name: str
    ranks: Sequence[int]
    usual_gap_ns: int
    longest_gap_ns: int = 0


@dataclass(frozen=True, slots=True)
class Entered:
    """That a rank entered a collective, as its own rows say.

    Attributes:
        rank: Global rank.
        group: The group.
        cseq: Number in it.
        op: Operation.
        shape: Shapes of its input.
        module: What it is for; "": not known.
    """

    rank: int
    group: str
    cseq: int
    op: str
    shape: str
    module: str


@dataclass(frozen=True, slots=True)
class LiveLaunch:
    """A launch that some agent says something of.

    Attributes:
        key: The run.
        launch: Launch id, 32 hex digits.
        told_ns: When the last row was written, on its agent's clock: another one tells that there is news.
    """

    key: RunKey
    launch: str
    told_ns: int


class StandingReader(Protocol):
    """Where the processes of a run stand; rows about it are kept for a day."""

    async def standings(self, key: RunKey, launch: str) -> tuple[Sequence[Standing], int]:
        """One of each rank of the launch, by rank, of the process heard last; and now, on the store's clock."""
        ...

    async def groups(self, key: RunKey, launch: str, *, names: Sequence[str]) -> Mapping[str, ProcessGroup]:
        """What the recorded collectives say of these groups, by name."""
        ...

    async def entered(self, key: RunKey, launch: str, *, of: Sequence[tuple[str, int]]) -> Sequence[Entered]:
        """The rows of these collectives (group, number), which need not be over."""
        ...

    async def live(self, *, limit: int) -> Sequence[LiveLaunch]:
        """The launches of all projects about which rows came within the last hour, the latest first."""
        ...
