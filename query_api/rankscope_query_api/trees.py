"""Trees from rows that may not make one: pure functions, no I/O.

What arrives is what processes sent: parents that never came, edges that close a cycle, spans stored twice, names
nested a thousand deep. Every span stays reachable: a span without its parent is a root that says so (`orphan`), a
cycle is cut at its earliest span (`cycle_cut`), a copy is dropped and counted. Nothing here recurses.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


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
