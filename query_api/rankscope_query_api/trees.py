"""Trees from rows that may not make one: pure functions, no I/O.

What arrives is what processes sent: parents that never came, edges that close a cycle, spans stored twice, names
nested a thousand deep. Every span stays reachable: a span without its parent is a root that says so (`orphan`), a
cycle is cut at its earliest span (`cycle_cut`), a copy is dropped and counted. Nothing here recurses.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rankscope_proto.names import Phase
from rankscope_query_api.values import PathTotal

_SHOWN_RANKS = 100
"""Missing ranks listed at one path; the step's own list is whole."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Spans as trees; spans are meant by their position in the rows the forest was built from.

    Attributes:
        roots: Spans without a known parent, in row order.
        children: Positions of each span's children, in row order; no entry: none.
        position: Position of a span by its id (the first row of that id).
        orphans: Roots whose parent is named and not there.
        cycles_cut: Roots that were made ones because their ancestors lead back to them.
        copies: Rows whose span id was there before; they are in no tree.
    """

    roots: Sequence[int]
    children: Mapping[int, Sequence[int]]
    position: Mapping[int, int]
    orphans: frozenset[int]
    cycles_cut: frozenset[int]
    copies: int

    @property
    def size(self) -> int:
        """Spans in the forest."""
        return len(self.position)

    def preorder(self) -> Iterator[tuple[int, int]]:
        """(position, depth) of every span, a parent before its children; roots have depth 0."""
        stack = [(root, 0) for root in reversed(self.roots)]
        while stack:
            position, depth = stack.pop()
            yield position, depth
            stack.extend((child, depth + 1) for child in reversed(self.children.get(position, ())))

    def warnings(self) -> list[str]:
        """What was wrong with the rows, a sentence each."""
        return tree_warnings(orphans=len(self.orphans), cycles=len(self.cycles_cut), copies=self.copies)


def tree_warnings(*, orphans: int, cycles: int, copies: int) -> list[str]:
    """What is wrong with rows that make no tree, a sentence each; nothing where all are 0."""
    found: list[str] = []
    if orphans:
        found.append(f"{orphans} spans name a parent that is not stored; they are shown as roots")
    if cycles:
        found.append(f"{cycles} cycles of parents were cut, each at its earliest span")
    if copies:
        found.append(f"{copies} rows repeat a span id that was there before; they are not shown")
    return found


def build_forest(span_ids: Sequence[int], parents: Sequence[int]) -> Forest:
    """The forest of some spans.

    Args:
        span_ids: uint64[n], ordered by (start, span_id); a repeated id is a copy.
        parents: uint64[n], 0 for a root.
    """
    position: dict[int, int] = {}
    for row, span_id in enumerate(span_ids):
        position.setdefault(span_id, row)
    children: defaultdict[int, list[int]] = defaultdict(list)
    roots: list[int] = []
    orphans: set[int] = set()
    for row in position.values():
        parent = position.get(parents[row]) if parents[row] else None
        if parent is not None:
            children[parent].append(row)
            continue
        roots.append(row)
        if parents[row]:
            orphans.add(row)
    cut = _cut_cycles(roots, children, position=position, parents=parents)
    roots = sorted((*roots, *cut))
    return Forest(roots, dict(children), position, frozenset(orphans), frozenset(cut), len(span_ids) - len(position))


def _cut_cycles(
    roots: Sequence[int],
    children: defaultdict[int, list[int]],
    *,
    position: Mapping[int, int],
    parents: Sequence[int],
) -> list[int]:
    """Frees what no root reaches: the earliest span of each cycle leaves its parent; returns those spans."""
    reached: set[int] = set()
    _reach(roots, children, reached=reached)
    cut: list[int] = []
    for row in position.values():
        if row in reached:
            continue
        first = _earliest_of_cycle(row, position, parents=parents)
        children[position[parents[first]]].remove(first)
        cut.append(first)
        _reach([first], children, reached=reached)
    return cut


def _earliest_of_cycle(row: int, position: Mapping[int, int], *, parents: Sequence[int]) -> int:
    # Who is reached from no root and walks up its parents comes into a cycle; rows are ordered by start.
    seen: set[int] = set()
    while row not in seen:
        seen.add(row)
        row = position[parents[row]]
    cycle = [row]
    while (above := position[parents[cycle[-1]]]) != row:
        cycle.append(above)
    return min(cycle)


def _reach(starts: Sequence[int], children: Mapping[int, Sequence[int]], *, reached: set[int]) -> None:
    stack = list(starts)
    while stack:
        row = stack.pop()
        if row not in reached:
            reached.add(row)
            stack.extend(children.get(row, ()))


@dataclass(frozen=True, slots=True)
class RankStep:
    """One rank's step, in ns; `wait_ns` is its backward time over the least of all ranks."""

    rank: int
    node: str
    start_ns: int
    duration_ns: int
    input_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    wait_ns: int


@dataclass(frozen=True, slots=True)
class MergedNode:
    """One logical place in a step, over the ranks.

    Attributes:
        path: Names from the root.
        name: The last of them.
        depth: Number of names before it.
        kind: Code of a `SpanKind`; 0: no rank has a span here, only below.
        phase: Code of a `Phase`; 0: none.
        count: Spans here, over all ranks.
        errors: Those that ended in an error.
        ranks: Ranks that have spans here.
        missing_ranks: Ranks that have the step and nothing here, the first 100.
        min_ns: Least of the ranks' summed durations.
        median_ns: Their median (of an even number: the mean of the middle two, rounded down).
        max_ns: Their greatest.
        slowest_rank: The rank with the greatest; None where no rank has spans here.
        first_start_ns: Earliest start over the ranks.
        last_start_ns: Latest first start of a rank.
    """

    path: str
    name: str
    depth: int
    kind: int
    phase: int
    count: int
    errors: int
    ranks: int
    missing_ranks: Sequence[int]
    min_ns: int
    median_ns: int
    max_ns: int
    slowest_rank: int | None
    first_start_ns: int
    last_start_ns: int


@dataclass(frozen=True, slots=True)
class MergedTree:
    """A step over its ranks.

    Attributes:
        nodes: Places, a parent before its children, siblings by earliest start.
        ranks: The ranks that have the step, ascending.
        missing_ranks: Ranks of the launch that have nothing of this step, ascending.
        warnings: What was wrong with the rows, a sentence each.
    """

    nodes: Sequence[MergedNode]
    ranks: Sequence[RankStep]
    missing_ranks: Sequence[int]
    warnings: Sequence[str]


def merge_step(totals: Sequence[PathTotal], world_size: int) -> MergedTree:
    """The tree of a step across its ranks, merged by path.

    Args:
        totals: What each rank did at each path.
        world_size: Ranks the launch has.
    """
    by_path: defaultdict[str, list[PathTotal]] = defaultdict(list)
    for total in totals:
        by_path[total.path].append(total)
    present = sorted({total.rank for total in totals})
    children = _path_children(by_path)
    stack = [*reversed(children[""])]
    nodes: list[MergedNode] = []
    while stack:
        path = stack.pop()
        nodes.append(_merged(path, by_path.get(path, ()), present=present))
        stack.extend(reversed(children.get(path, ())))
    known = set(present)
    return MergedTree(
        nodes=nodes,
        ranks=_rank_steps(by_path),
        missing_ranks=[rank for rank in range(world_size) if rank not in known],
        warnings=_merge_warnings(totals),
    )


def _path_children(by_path: Mapping[str, Sequence[PathTotal]]) -> defaultdict[str, list[str]]:
    """Paths below each path, by earliest start; paths that only have something below them are there too."""
    first: dict[str, int] = {}
    for path, totals in by_path.items():
        start = min(total.start_ns for total in totals)
        # A chain of names is as long as the path is deep: paths are walked, not recursed into.
        place = path
        while place and (place not in first or start < first[place]):
            first[place] = start
            place = place.rpartition("/")[0]
    children: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(first, key=lambda path: (first[path], path)):
        children[path.rpartition("/")[0]].append(path)
    return children


def _merged(path: str, totals: Sequence[PathTotal], *, present: Sequence[int]) -> MergedNode:
    here = {total.rank for total in totals}
    durations = [total.duration_ns for total in totals] or [0]
    slowest = max(totals, key=lambda total: (total.duration_ns, -total.rank), default=None)
    starts = [total.start_ns for total in totals] or [0]
    missing = [rank for rank in present if rank not in here]
    return MergedNode(
        path=path,
        name=totals[0].name if totals else unescaped(path.rpartition("/")[2]),
        depth=path.count("/"),
        kind=totals[0].kind if totals else 0,
        phase=totals[0].phase if totals else 0,
        count=sum(total.count for total in totals),
        errors=sum(total.errors for total in totals),
        ranks=len(here),
        missing_ranks=missing[:_SHOWN_RANKS],
        min_ns=min(durations),
        median_ns=int(median(durations)),
        max_ns=max(durations),
        slowest_rank=None if slowest is None else slowest.rank,
        first_start_ns=min(starts),
        last_start_ns=max(starts),
    )


def _rank_steps(by_path: Mapping[str, Sequence[PathTotal]]) -> list[RankStep]:
    phases = {
        phase: {total.rank: total.duration_ns for total in by_path.get(f"step/{phase.value}", ())} for phase in Phase
    }
    backward = phases[Phase.BACKWARD]
    least = min(backward.values(), default=0)
    return [
        RankStep(
            rank=total.rank,
            node=total.node,
            start_ns=total.start_ns,
            duration_ns=total.duration_ns,
            input_ns=phases[Phase.INPUT].get(total.rank, 0),
            forward_ns=phases[Phase.FORWARD].get(total.rank, 0),
            backward_ns=backward.get(total.rank, 0),
            optimizer_ns=phases[Phase.OPTIMIZER].get(total.rank, 0),
            wait_ns=backward.get(total.rank, least) - least,
        )
        for total in sorted(by_path.get("step", ()), key=lambda total: total.rank)
    ]


def _merge_warnings(totals: Sequence[PathTotal]) -> list[str]:
    found: list[str] = []
    copies = sum(total.copies - total.count for total in totals)
    if copies:
        found.append(f"{copies} rows repeat a span that was there before; each is counted once")
    shared = sorted({total.rank for total in totals if total.processes > 1})
    if shared:
        named = ", ".join(str(rank) for rank in shared[:10])
        found.append(f"two processes wrote this step for rank {named}; their times are added up")
    return found


def unescaped(name: str) -> str:
    """A name as it was before it went into a path, where '/' is written %2F and '%' %25."""
    return name.replace("%2F", "/").replace("%25", "%")
