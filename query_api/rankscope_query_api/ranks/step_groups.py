"""Places of a step by what their ranks have in common: the rank itself, its node, its coordinate in the mesh."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_query_api.ranks.step_places import Place, Spread, spread_of

MOST_GROUPS = 128
"""Groups that are shown at one place, those with the slowest rank first."""


@dataclass(frozen=True, slots=True)
class Group:
    """Some ranks of a place.

    Attributes:
        name: Rank, node or coordinate that they share; None: of these ranks it is not known.
        spread: How long they took.
    """

    name: str | int | None
    spread: Spread


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a place, the one with the slowest rank first; `total` counts those that are not shown, too."""

    shown: Sequence[Group]
    total: int


def grouped(place: Place | None, names: Mapping[int, str | int | None], *, charged: Mapping[int, int] | None) -> Groups:
    """A place by groups of ranks.

    Args:
        place: The place; None: nobody has spans there.
        names: The group of each rank; a rank that is not there is in the one without a name.
        charged: What ranks are charged with because of it, in ns; None: not known.
    """
    taken = {} if place is None else place.durations_ns
    members: defaultdict[str | int | None, list[int]] = defaultdict(list)
    for rank in taken:
        members[names.get(rank)].append(rank)
    most = {name: max(taken[rank] for rank in ranks) for name, ranks in members.items()}
    shown = sorted(members, key=lambda name: (-most[name], name is None, str(name)))[:MOST_GROUPS]
    return Groups([Group(name, spread_of(place, ranks=members[name], charged=charged)) for name in shown], len(members))
