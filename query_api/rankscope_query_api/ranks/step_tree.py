"""The tree of a step across its ranks: logical places, merged by path. Pure functions, no I/O.

Durations come from each process's own monotonic clock and are compared as they are. Starts come from the clocks of
many processes: places that begin closer than those clocks are known are shown in some order, and say so
(`order_known`). Nothing here recurses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankscope_proto.names import Phase
from rankscope_query_api.ranks.missing import MissingRank, absences
from rankscope_query_api.ranks.step_order import Beginnings, RankClock
from rankscope_query_api.ranks.step_places import Place, Spread, path_with, places_of, spread_of
from rankscope_query_api.step_rows import EdgeFaults, PathTotals, StepCharges, StepProcess

_SHOWN_RANKS = 100
"""Missing ranks listed at one path; the step's own list has more."""

_NAMED = 10
"""Ranks that a sentence names."""


@dataclass(frozen=True, slots=True)
class RankStep:
    """One rank's step, in ns.

    Attributes:
        rank: Global rank.
        node: Host name.
        start_ns: When it began.
        duration_ns: How long it took.
        input_ns: Its input phase; 0: not traced.
        forward_ns: Its forward phase.
        backward_ns: Its backward phase.
        optimizer_ns: Its optimizer phase.
        wait_ns: Its backward time over the least of all ranks.
        charged_ns: What others waited for it in matched collectives; None: not known.
    """

    rank: int
    node: str
    start_ns: int
    duration_ns: int
    input_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    wait_ns: int
    charged_ns: int | None


@dataclass(frozen=True, slots=True)
class MergedNode:
    """One logical place in a step, over the ranks.

    Attributes:
        path: Names from the root.
        name: The last of them.
        depth: Number of names before it.
        kind: Code of a `SpanKind`; 0: no rank has a span here, only below.
        phase: Code of a `Phase`; 0: none.
        microbatch: Microbatch of a pipeline; None: none, or all of them.
        count: Spans here, over all ranks.
        errors: Those that ended in an error.
        late: Those that begin before their parent or end after it, by more than the clocks' error.
        orphans: Those whose parent is not stored.
        spread: How long the ranks took.
        missing_ranks: Ranks that have the step and nothing here, the first 100.
        first_start_ns: Earliest start over the ranks, of those whose clocks are known where any is.
        last_start_ns: Latest first start of one of these ranks.
        order_known: Whether it is known to begin after the sibling before it.
    """

    path: str
    name: str
    depth: int
    kind: int
    phase: int
    microbatch: int | None
    count: int
    errors: int
    late: int
    orphans: int
    spread: Spread
    missing_ranks: Sequence[MissingRank]
    first_start_ns: int
    last_start_ns: int
    order_known: bool


@dataclass(frozen=True, slots=True)
class Given:
    """What is known of a step beside its spans.

    Attributes:
        processes: The processes that have spans of it.
        edges: Edges that make no proper tree.
        charges: What ranks are charged with; None: no collective of the step was matched.
        clocks: The clock of each rank.
        absent: Ranks of the launch that have nothing of the step, the first 10,000.
        absent_total: How many these are.
        gap_causes: What is stated to be missing of a rank's spans of this step, in words.
    """

    processes: Sequence[StepProcess] = ()
    edges: Sequence[EdgeFaults] = ()
    charges: StepCharges | None = None
    clocks: Mapping[int, RankClock] = field(default_factory=dict[int, RankClock])
    absent: Sequence[MissingRank] = ()
    absent_total: int = 0
    gap_causes: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True)
class MergedTree:
    """A step over its ranks.

    Attributes:
        nodes: Places, a parent before its children, siblings by earliest start.
        places: What each rank did, by path; none where only something below has spans.
        ranks: The ranks that have the step, ascending.
        missing_ranks: Ranks of the launch that have nothing of this step, ascending, the first 10,000.
        copies: Rows that repeat a span.
        charges: What ranks are charged with; None: no collective of the step is known.
        warnings: What was wrong with the rows, a sentence each.
    """

    nodes: Sequence[MergedNode]
    places: Mapping[str, Place]
    ranks: Sequence[RankStep]
    missing_ranks: Sequence[MissingRank]
    copies: int
    charges: StepCharges | None
    warnings: Sequence[str]

    @property
    def depth(self) -> int:
        """Greatest number of names above a place."""
        return max((node.depth for node in self.nodes), default=0)


def merge_step(totals: Sequence[PathTotals], given: Given) -> MergedTree:
    """The tree of a step across its ranks, merged by path.

    Args:
        totals: What the ranks did at each path.
        given: What else is known.
    """
    places = places_of(totals)
    nodes = _Growing(places, given).nodes()
    copies = sum(sum(one.copies) - sum(one.counts) for one in totals)
    return MergedTree(
        nodes=nodes,
        places=places,
        ranks=_rank_steps(places, given),
        missing_ranks=given.absent,
        copies=copies,
        charges=given.charges,
        warnings=_warnings(nodes, given, copies=copies),
    )


class _Growing:
    """A tree being put together."""

    def __init__(self, places: Mapping[str, Place], given: Given) -> None:
        self._present = frozenset(rank for place in places.values() for rank in place.durations_ns)
        self._places = places
        self._given = given
        self._faults = {path_with(one.path, one.microbatch): one for one in given.edges}
        self._begun = Beginnings(places, given.clocks)

    def nodes(self) -> list[MergedNode]:
        """The places, a parent before its children."""
        found: list[MergedNode] = []
        stack = self._below("")
        while stack:
            path, order_known = stack.pop()
            found.append(self._node(path, order_known=order_known))
            stack.extend(self._below(path))
        return found

    def _below(self, path: str) -> list[tuple[str, bool]]:
        """The places right below a path, the first one last, each with whether its order is known."""
        below = self._begun.children(path)
        return list(zip(below, self._begun.orders(below), strict=True))[::-1]

    def _node(self, path: str, *, order_known: bool) -> MergedNode:
        place = self._places.get(path) or Place(unescaped(path.rpartition("/")[2]), 0, 0, None)
        faults = self._faults.get(path)
        first, last = self._begun.starts(path)
        absent = sorted(self._present.difference(place.durations_ns))[:_SHOWN_RANKS]
        return MergedNode(
            path=path,
            name=place.name,
            depth=path.count("/"),
            kind=place.kind,
            phase=place.phase,
            microbatch=place.microbatch,
            count=place.count,
            errors=place.errors,
            late=faults.late if faults else 0,
            orphans=faults.orphans if faults else 0,
            spread=spread_of(place, charged=charged_at(path, self._given.charges)),
            missing_ranks=absences(absent, self._given.gap_causes),
            first_start_ns=first,
            last_start_ns=last,
            order_known=order_known,
        )


def charged_at(path: str, charges: StepCharges | None) -> Mapping[int, int] | None:
    """What ranks are charged with because of a place: of the step itself all; None: not known."""
    if charges is None:
        return None
    return charges.by_rank if "/" not in path else charges.by_path.get(path, {})


def _rank_steps(places: Mapping[str, Place], given: Given) -> list[RankStep]:
    step = places.get("step")
    if step is None:
        return []
    phases = {phase: _durations(places, f"step/{phase.value}") for phase in Phase}
    backward = phases[Phase.BACKWARD]
    least = min(backward.values(), default=0)
    nodes = {one.rank: one.node for one in given.processes if one.roots}
    return [
        RankStep(
            rank=rank,
            node=nodes.get(rank, ""),
            start_ns=step.starts_ns[rank],
            duration_ns=step.durations_ns[rank],
            input_ns=phases[Phase.INPUT].get(rank, 0),
            forward_ns=phases[Phase.FORWARD].get(rank, 0),
            backward_ns=backward.get(rank, 0),
            optimizer_ns=phases[Phase.OPTIMIZER].get(rank, 0),
            wait_ns=backward.get(rank, least) - least,
            charged_ns=None if given.charges is None else given.charges.by_rank.get(rank, 0),
        )
        for rank in sorted(step.durations_ns)
    ]


def _durations(places: Mapping[str, Place], path: str) -> Mapping[int, int]:
    return places[path].durations_ns if path in places else {}


def chosen(processes: Sequence[StepProcess]) -> tuple[Sequence[StepProcess], Sequence[StepProcess]]:
    """The processes whose spans make the tree, and those that are left out of it.

    Where two processes have the step as the same rank, adding up their times would show a rank that nobody was: the
    one with the most spans stands for it, of equal ones the one with the lower id.
    """
    first: dict[int, StepProcess] = {}
    for one in sorted(processes, key=lambda one: (-one.spans, one.incarnation)):
        if one.roots:
            first.setdefault(one.rank, one)
    left_out = [one for one in processes if one.roots and one is not first[one.rank]]
    out = {(one.incarnation, one.rank) for one in left_out}
    return [one for one in processes if (one.incarnation, one.rank) not in out], left_out


def _warnings(nodes: Sequence[MergedNode], given: Given, *, copies: int) -> list[str]:
    found: list[str] = []
    if given.absent_total > len(given.absent):
        found.append(f"{given.absent_total} ranks have nothing of this step: the first {len(given.absent)} are named")
    if copies:
        found.append(f"{copies} rows repeat a span that was there before; each is counted once")
    _, left_out = chosen(given.processes)
    if left_out:
        named = ", ".join(str(rank) for rank in sorted({one.rank for one in left_out})[:_NAMED])
        found.append(
            f"more than one process has this step as rank {named}: the one with the most spans is shown, and the "
            f"others ({', '.join(one.incarnation for one in left_out[:_NAMED])}) are left out"
        )
    if orphans := sum(node.orphans for node in nodes):
        found.append(f"{orphans} spans name a parent that is not stored")
    if late := sum(node.late for node in nodes):
        found.append(f"{late} spans begin before their parent or end after it, by more than the clocks' error")
    if unordered := sum(not node.order_known for node in nodes):
        found.append(f"{unordered} places begin closer to the one before than the clocks of their ranks are known")
    return found


def unescaped(name: str) -> str:
    """A name as it was before it went into a path, where '/' is written %2F and '%' %25."""
    return name.replace("%2F", "/").replace("%25", "%")
