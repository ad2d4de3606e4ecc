"""Where non-finite values came from: a pure judge over each process's first ones and the collectives between them.

What a process saw first comes before all that it saw later, and what it held when it entered a collective reaches
whoever left that collective. Nothing else orders two ranks: clocks are not compared. So a process's first non-finite
value was *received* where some other process had one before it entered a collective that this one had left by then;
a gradient after its reduction was received where any rank's was non-finite before. What was not received is an
origin: its process saw every earlier tensor finite. Of several origins the order is not known, and all are named;
only where no collective was recorded at all does the step decide, and the answer says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rankscope_query_api.nonfinite import FirstNonfinite, Passage

Basis = Literal["collectives", "reduction", "step", "alone"]
"""What ordered the ranks: matched collectives; the reduction of gradients, of which no row is there; the step alone;
nothing had to: one rank has non-finite values."""


@dataclass(frozen=True, slots=True)
class Received:
    """A process whose first non-finite value came from others.

    Attributes:
        first: What it saw first.
        via: The collective that brought it; None: none was recorded, and its role says that it was reduced.
        of: The rank that brought it there.
    """

    first: FirstNonfinite
    via: Passage | None
    of: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where non-finite values came from.

    Attributes:
        origin: Whose inputs were finite; None: it is undecided, or nothing is non-finite.
        received: The others, by rank.
        undecided: Processes of which it is not known which was first, by rank; none where there is an origin.
        basis: What ordered them.
    """

    origin: FirstNonfinite | None
    received: Sequence[Received]
    undecided: Sequence[FirstNonfinite]
    basis: Basis


def origins(firsts: Sequence[FirstNonfinite], passages: Sequence[Passage]) -> Provenance:
    """Tells where non-finite values came from.

    Args:
        firsts: The first of each process, in any order.
        passages: The collectives between them, in any order.
    """
    ordered = sorted(firsts, key=lambda first: (first.rank, first.incarnation))
    if len(ordered) < 2:
        return Provenance(ordered[0] if ordered else None, [], [], "alone")
    crossings = _Crossings(passages)
    received = {
        first.incarnation: found for first in ordered if (found := _received(first, ordered, crossings=crossings))
    }
    roots = [first for first in ordered if first.incarnation not in received]
    by_collective = any(one.via is not None for one in received.values())
    basis: Basis = "collectives" if by_collective else "reduction"
    if not received or (len(roots) > 1 and not passages):
        roots, late = _earliest(roots, has_passages=bool(passages))
        received |= {first.incarnation: Received(first, None, roots[0].rank) for first in late}
        basis = basis if not late else "step"
    told = [received[first.incarnation] for first in ordered if first.incarnation in received]
    if len(roots) == 1:
        return Provenance(roots[0], told, [], basis)
    return Provenance(None, told, roots, basis)


class _Crossings:
    """When processes entered and left the collectives that they share."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._of: dict[str, list[tuple[Passage, int, int]]] = {}
        self._entries: list[Mapping[str, int]] = []
        for place, passage in enumerate(passages):
            self._entries.append({one.incarnation: one.entry_ns for one in passage.passings})
            for one in passage.passings:
                left_ns = one.entry_ns if one.exit_ns is None else one.exit_ns
                self._of.setdefault(one.incarnation, []).append((passage, place, left_ns))
        for crossed in self._of.values():
            crossed.sort(key=lambda crossing: crossing[2])

    def first_from(self, source: FirstNonfinite, to: FirstNonfinite) -> Passage | None:
        """The first collective that one entered with its value and the other had left before it saw its own."""
        for passage, place, left_ns in self._of.get(to.incarnation, ()):
            if left_ns > to.time_ns:
                return None
            entry_ns = self._entries[place].get(source.incarnation)
            if entry_ns is not None and entry_ns >= source.time_ns:
                return passage
        return None


def _received(first: FirstNonfinite, firsts: Sequence[FirstNonfinite], *, crossings: _Crossings) -> Received | None:
    """From whom a process has its value, and over which collective; None: from nobody that is known."""
    others = [other for other in firsts if other.incarnation != first.incarnation]
    brought = [(passage, other) for other in others if (passage := crossings.first_from(other, first)) is not None]
    if brought:
        passage, other = min(brought, key=lambda one: (_place(one[0]), _order(one[1]), one[1].rank))
        return Received(first, passage, other.rank)
    own = [other for other in others if not other.is_reduced and _order(other) <= _order(first)]
    if first.is_reduced and own:
        return Received(first, None, min(own, key=lambda other: (_order(other), other.rank)).rank)
    return None


def _earliest(
    roots: Sequence[FirstNonfinite], *, has_passages: bool
) -> tuple[Sequence[FirstNonfinite], Sequence[FirstNonfinite]]:
    """Those of the least step, and the others; all, where collectives are recorded and none lies between them."""
    least = min((_step(first) for first in roots), default=-1)
    if has_passages or all(_step(first) == least for first in roots):
        return roots, []
    return [first for first in roots if _step(first) == least], [first for first in roots if _step(first) != least]


def _step(first: FirstNonfinite) -> int:
    return -1 if first.step is None else first.step


def _order(first: FirstNonfinite) -> tuple[int, int, int]:
    return _step(first), first.microstep, first.phase


def _place(passage: Passage) -> tuple[int, str, int]:
    return -1 if passage.step is None else passage.step, passage.group, passage.cseq
