"""What ranks did at each logical place of a step, and how it is spread over them. Pure functions, no I/O.

Microbatches of a pipeline are kept apart: below a phase each is a place of its own, and what ran in it is below that;
the phase itself has the sums.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from statistics import median

from rankscope_query_api.step_rows import PathTotals

_LISTS = ("ranks", "processes", "counts", "copies", "errors", "durations_ns", "starts_ns")
"""The lists of `PathTotals`."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How long some ranks took at one place.

    Attributes:
        ranks: How many have spans there.
        min_ns: Least of their summed durations.
        median_ns: Their median (of an even number: the mean of the middle two, rounded down).
        max_ns: Their greatest.
        slowest_rank: The rank with the greatest, of equal ones the lowest; None where no rank has spans there.
        charged_wait_ns: What others waited for them because of this place; None: not known.
    """

    ranks: int
    min_ns: int
    median_ns: int
    max_ns: int
    slowest_rank: int | None
    charged_wait_ns: int | None


@dataclass(slots=True)
class Place:
    """What the ranks did at one place, by rank.

    Attributes:
        name: Its name.
        kind: Code of a `SpanKind`; 0: none.
        phase: Code of a `Phase`.
        microbatch: Microbatch of a pipeline.
        count: Spans.
        rows: Rows that these were.
        errors: Spans with errors.
        durations_ns: Summed durations by rank.
        starts_ns: First starts by rank.
    """

    name: str
    kind: int
    phase: int
    microbatch: int | None
    count: int = 0
    rows: int = 0
    errors: int = 0
    durations_ns: dict[int, int] = field(default_factory=dict[int, int])
    starts_ns: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, totals: PathTotals) -> None:
        """Takes in what ranks did here, in another microbatch perhaps."""
        self.count += sum(totals.counts)
        self.rows += sum(totals.copies)
        self.errors += sum(totals.errors)
        if not self.durations_ns and len(set(totals.ranks)) == len(totals.ranks):
            self.durations_ns = dict(zip(totals.ranks, totals.durations_ns, strict=True))
            self.starts_ns = dict(zip(totals.ranks, totals.starts_ns, strict=True))
            return
        rows = zip(totals.ranks, totals.durations_ns, totals.starts_ns, strict=True)
        for rank, duration, start in rows:
            self.durations_ns[rank] = self.durations_ns.get(rank, 0) + duration
            self.starts_ns[rank] = min(start, self.starts_ns.get(rank, start))


def path_with(path: str, microbatch: int | None) -> str:
    """The path of a place in a microbatch: behind the phase, which is the first name below the step, it has a part."""
    if microbatch is None or path.count("/") == 0:
        return path
    step, phase, *rest = path.split("/", 2)
    return "/".join((step, phase, f"microbatch {microbatch}", *rest))


def settled(totals: PathTotals, offsets_ns: Mapping[int, int], *, left_out: AbstractSet[int]) -> PathTotals:
    """What ranks did at one path, on one clock and without some processes.

    Args:
        totals: What they did.
        offsets_ns: What is added to the times of each process, by its number.
        left_out: Numbers of the processes whose spans do not count.
    """
    if not left_out.isdisjoint(totals.processes):
        kept = [place for place, process in enumerate(totals.processes) if process not in left_out]
        lists = {name: [getattr(totals, name)[place] for place in kept] for name in _LISTS}
        totals = replace(totals, **lists)
    pairs = zip(totals.starts_ns, totals.processes, strict=True)
    return replace(totals, starts_ns=[start + offsets_ns.get(process, 0) for start, process in pairs])


def places_of(totals: Sequence[PathTotals]) -> dict[str, Place]:
    """What the ranks did, by path."""
    places: dict[str, Place] = {}
    for one in totals:
        kept_apart = path_with(one.path, one.microbatch)
        _place(places, kept_apart, of=one).add(one)
        if kept_apart != one.path and one.path.count("/") == 1:  # a phase: its own place has all its microbatches
            _place(places, one.path, of=one).add(one)
    for path, place in places.items():
        if place.microbatch is not None and path.endswith(f"/microbatch {place.microbatch}"):
            place.name = f"microbatch {place.microbatch}"
    return places


def _place(places: dict[str, Place], path: str, *, of: PathTotals) -> Place:
    microbatch = of.microbatch if path != of.path else None
    return places.setdefault(path, Place(of.name, of.kind, of.phase, microbatch))


def spread_of(place: Place | None, *, ranks: Iterable[int] | None = None, charged: Mapping[int, int] | None) -> Spread:
    """How long ranks took at a place.

    Args:
        place: The place; None: nobody has spans there.
        ranks: Of these ranks only; None: of all.
        charged: What ranks are charged with because of it, in ns; None: not known.
    """
    taken = {} if place is None else place.durations_ns
    if ranks is not None:
        taken = {rank: taken[rank] for rank in ranks if rank in taken}
    times = taken.values() or (0,)
    most = max(times)
    return Spread(
        ranks=len(taken),
        min_ns=min(times),
        median_ns=int(median(times)),
        max_ns=most,
        slowest_rank=min([rank for rank, time in taken.items() if time == most], default=None),
        charged_wait_ns=None if charged is None else sum(charged.get(rank, 0) for rank in taken),
    )
