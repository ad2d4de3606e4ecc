"""In which order the places of a step began, as far as the clocks of its ranks tell. Pure functions, no I/O.

Two places that one rank has are ordered by that rank's own clock. Where no rank has both, their first starts are of
different clocks, and the order is known only where they are farther apart than those clocks may err.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rankscope_query_api.ranks.clocks import Moment, order
from rankscope_query_api.ranks.step_places import Place


@dataclass(frozen=True, slots=True)
class RankClock:
    """The clock of a rank's process.

    Attributes:
        clock: Which one it is; ranks of one node share it.
        error_ns: Bound of its error, either way; None: it was not measured.
    """

    clock: str
    error_ns: int | None


class Beginnings:
    """When the places of a step began.

    Args:
        places: What the ranks did, by path.
        clocks: Their clocks, by rank; a rank that is not there has one of its own that was not measured.
    """

    def __init__(self, places: Mapping[str, Place], clocks: Mapping[int, RankClock]) -> None:
        self._places = places
        self._clocks = clocks
        measured = {rank for rank, clock in clocks.items() if clock.error_ns is not None}
        self._known = {path: _of(place, measured) for path, place in places.items()}
        self._first = self._firsts()
        self._children: defaultdict[str, list[str]] = defaultdict(list)
        for path in sorted(self._first, key=lambda path: (self._first[path][0], path)):
            self._children[path.rpartition("/")[0]].append(path)

    def children(self, path: str) -> Sequence[str]:
        """The places right below a path ("": the roots), by earliest start; some may only have something below."""
        return self._children.get(path, ())

    def starts(self, path: str) -> tuple[int, int]:
        """The earliest and the latest start of a rank at a place; of those whose clocks were measured, if any was."""
        known = self._known.get(path) or {self._first[path][1]: self._first[path][0]}
        return min(known.values()), max(known.values())

    def orders(self, siblings: Sequence[str]) -> list[bool]:
        """Whether each of some siblings is known to begin after the one before it; of the first one nothing is said."""
        return [True, *(self._is_after(*pair) for pair in pairwise(siblings))] if siblings else []

    def _firsts(self) -> dict[str, tuple[int, int]]:
        """The first start at or below each path, and whose it is."""
        first: dict[str, tuple[int, int]] = {}
        for path, starts in self._known.items():
            earliest = min(starts.values())
            begun = earliest, min([rank for rank, start in starts.items() if start == earliest])
            # A chain of names is as long as the path is deep: paths are walked, not recursed into.
            place = path
            while place and (place not in first or begun < first[place]):
                first[place] = begun
                place = place.rpartition("/")[0]
        return first

    def _is_after(self, before: str, after: str) -> bool:
        first, second = self._first[before], self._first[after]
        mine, other = self._starts_of(before), self._starts_of(after)
        for rank in (second[1], first[1]):
            if rank in mine and rank in other and mine[rank] < other[rank]:
                return True
        return order(self._moment(*first), self._moment(*second)) == "before"

    def _starts_of(self, path: str) -> Mapping[int, int]:
        begun, rank = self._first[path]
        return self._places[path].starts_ns if path in self._places else {rank: begun}

    def _moment(self, start: int, rank: int) -> Moment:
        clock = self._clocks.get(rank, RankClock(f"rank {rank}", None))
        return Moment(start, clock.error_ns, clock.clock)


def _of(place: Place, measured: set[int]) -> Mapping[int, int]:
    """The starts that are on one clock; all, where none is known to be."""
    if measured.issuperset(place.starts_ns):
        return place.starts_ns
    known = {rank: start for rank, start in place.starts_ns.items() if rank in measured}
    return known or place.starts_ns
