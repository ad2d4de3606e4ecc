"""Reads the collectives of some steps of a launch, and charges the waits at them: for every route that shows them.

What is read has a bound: where the steps that are asked for hold more, the latest of them are judged, and the answer
says which.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankscope_query_api.errors import InvalidRequestError
from rankscope_query_api.meetings import UNMEASURED, Meeting, Member, Placed, StepReach, Window
from rankscope_query_api.onset import WARM_UP_STEPS
from rankscope_query_api.ranks.arrivals import Match
from rankscope_query_api.ranks.charges import Account, Charge, account, explained
from rankscope_query_api.ranks.clocks import Correction
from rankscope_query_api.ranks.matching import Heard, matched
from rankscope_query_api.ranks.stragglers import DEFAULT, Recurrence, Thresholds, find_stragglers
from rankscope_query_api.routes.asking import MAX_STEP
from rankscope_query_api.routes.clocks import correction_of
from rankscope_query_api.store import TraceStore
from rankscope_query_api.values import RunKey

MOST_STEPS = 2000
"""Most steps that are judged."""

MOST_ARRIVALS = 600_000
"""Most rows that are read, calls between two ranks counted: 150 steps of 1,024 ranks with four collectives each."""

MOST_MATCHES = 20_000
"""Most collectives that are judged."""

MOST_EXPLAINED = 1000
"""Most charges whose causes are looked for, the greatest first; those of the others are unknown."""

MOST_UNMATCHED = 20
"""Most collectives that did not come together of which the arrivals are read."""


@dataclass(frozen=True, slots=True)
class Key:
    """What waits are counted for: a rank, a node or a coordinate of the mesh.

    Attributes:
        name: As it is shown.
        members: Its processes.
    """

    name: str
    members: Sequence[Member]

    @property
    def ranks(self) -> Sequence[int]:
        """Its ranks, ascending."""
        return sorted({member.rank for member in self.members})


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of some steps of a launch.

    Attributes:
        window: What was looked at; None: there are no collectives in it.
        reached: The steps of it, the latest first.
        is_cut: Whether earlier steps were asked for and left out.
        keys: Whom waits are counted for, as `Meeting.key` numbers them.
        meetings: The collectives.
        account: What they come to; `charges` have their causes.
        stragglers: Who makes the others wait again and again, by key.
        correction: What times were put on one clock by.
        last_ns: By process: its last entry in the window, by its own clock.
        matches: The arrivals of the first of `account.unmatched`, by (group, its ranks as text, number).
    """

    window: Window | None
    reached: Sequence[StepReach]
    is_cut: bool
    keys: Sequence[Key]
    meetings: Sequence[Meeting]
    account: Account
    stragglers: Mapping[int, Recurrence]
    correction: Correction
    last_ns: Mapping[str, int]
    matches: Mapping[tuple[str, str, int], Match] = field(default_factory=dict[tuple[str, str, int], Match])


@dataclass(frozen=True, slots=True)
class Steps:
    """Which steps are asked for, and how waits are counted.

    Attributes:
        first: The first; None: from the beginning of the launch, without those of warming up.
        last: The last; None: up to the end.
        by: `rank`, `node` or `mesh.<axis>`.
    """

    first: int | None = None
    last: int | None = None
    by: str = "rank"


async def waits_of(
    store: TraceStore, key: RunKey, *, launch: str, steps: Steps, thresholds: Thresholds = DEFAULT
) -> Waits:
    """Charges the waits at the collectives of some steps of a launch.

    Raises:
        InvalidRequestError: The launch has no such axis.
    """
    first, last = steps.first or 0, MAX_STEP - 1 if steps.last is None else steps.last
    reached = await store.meetings.reach(key, launch, first=first, last=last, steps=MOST_STEPS + 2)
    members = await store.meetings.members(key, launch)
    keys = _keys(members, steps.by)
    kept, with_outside = _kept(reached)
    if not kept and not with_outside:
        return Waits(None, [], False, keys, [], account([]), {}, Correction(()), {})
    is_cut = len(kept) < sum(one.step >= 0 for one in reached)
    window = Window(launch, kept[-1].step if kept else 0, kept[0].step if kept else 0, with_outside=with_outside)
    extents = await store.meetings.extents(key, window)
    correction = await _correction(store, key, window, extents=extents)
    placed = _placed(keys, extents, correction=correction)
    meetings = await store.meetings.meetings(key, window, placed=placed, limit=MOST_MATCHES)
    is_begin = steps.first is None and not is_cut
    begin = window.first + WARM_UP_STEPS if is_begin else window.first
    found = await asyncio.to_thread(account, meetings)
    charges = await _explained(store, key, launch=launch, charges=found.charges)
    stragglers = await asyncio.to_thread(
        find_stragglers, meetings, charges, keys=len(keys), first=begin, thresholds=thresholds
    )
    whole = replace(found, charges=charges)
    matches = await _matches(store, key, launch=launch, found=whole, members=members, correction=correction)
    last_ns = {incarnation: end for incarnation, (_, end) in extents.items()}
    return Waits(window, kept, is_cut, keys, meetings, whole, stragglers, correction, last_ns, matches)


def _keys(members: Sequence[Member], by: str) -> list[Key]:
    named: dict[str, list[Member]] = {}
    for member in members:
        named.setdefault(_name(member, by), []).append(member)
    if by.startswith("mesh.") and members and set(named) == {""}:
        axes = sorted({axis for member in members for axis in member.mesh})
        raise InvalidRequestError(
            f"by is {by!r}, and no rank of this launch has said its place on that axis",
            hint=f"its axes are {', '.join(axes)}" if axes else "the launch has no mesh: count by rank or by node",
            expected=["rank", "node", *(f"mesh.{axis}" for axis in axes)],
        )
    return [Key(name, of_it) for name, of_it in named.items()]


def _name(member: Member, by: str) -> str:
    if by == "rank":
        return str(member.rank)
    if by == "node":
        return member.node
    coordinate = member.mesh.get(by.removeprefix("mesh."))
    return "" if coordinate is None else str(coordinate)


def _kept(reached: Sequence[StepReach]) -> tuple[list[StepReach], bool]:
    """The latest steps that are within the bounds, the latest first; and whether what is outside any step is, too."""
    kept, arrivals, matches = list[StepReach](), 0, 0
    for one in [one for one in reached if one.step >= 0][:MOST_STEPS]:
        arrivals, matches = arrivals + one.arrivals, matches + one.matches
        if kept and (arrivals > MOST_ARRIVALS or matches > MOST_MATCHES):
            break
        kept.append(one)
    outside = [one for one in reached if one.step < 0]
    spare = MOST_ARRIVALS - sum(one.arrivals for one in kept), MOST_MATCHES - sum(one.matches for one in kept)
    return kept, any(one.arrivals <= spare[0] and one.matches <= spare[1] for one in outside)


async def _correction(
    store: TraceStore, key: RunKey, window: Window, /, *, extents: Mapping[str, tuple[int, int]]
) -> Correction:
    between = min(begin for begin, _ in extents.values()), max(end for _, end in extents.values())
    return await correction_of(store, key, window.launch, between=between, steps=(window.first, window.last))


def _placed(keys: Sequence[Key], extents: Mapping[str, tuple[int, int]], *, correction: Correction) -> list[Placed]:
    """Each process with its clock as a line over what it has in the window."""
    clocks: dict[str, int] = {}
    found = list[Placed]()
    for number, key in enumerate(keys):
        for member in key.members:
            if member.incarnation not in extents:
                continue
            clock = clocks.setdefault(correction.clock_of(member.incarnation), len(clocks))
            begin, end = extents[member.incarnation]
            found.append(_line(member, number, correction=correction, begin=begin, end=end, clock=clock))
    return found


def _line(member: Member, key: int, *, correction: Correction, begin: int, end: int, clock: int) -> Placed:
    middle = (begin + end) // 2
    at = [correction.at(member.incarnation, time_ns) for time_ns in (begin, middle, end)]
    first, inner, last = at
    if first is None or inner is None or last is None:
        return Placed(member.incarnation, member.rank, key, begin, 0, 0.0, UNMEASURED, clock)
    slope = (last[0] - first[0]) / (end - begin) if end > begin else 0.0
    bend = abs(inner[0] - (first[0] + last[0]) // 2)
    error = max(first[1], inner[1], last[1]) + bend
    return Placed(member.incarnation, member.rank, key, begin, first[0], slope, error, clock)


async def _explained(store: TraceStore, key: RunKey, *, launch: str, charges: Sequence[Charge]) -> list[Charge]:
    """The charges with the causes of the greatest of them."""
    greatest = sorted(charges, key=lambda charge: -charge.wait_ns)[:MOST_EXPLAINED]
    stays = [
        (charge.meeting.step, stay)
        for charge in greatest
        for stay in (charge.meeting.last, charge.meeting.peer)
        if stay is not None and charge.meeting.step is not None and charge.wait_ns > 0
    ]
    spans = await store.meetings.own_spans(key, launch, stays=stays)
    known = await asyncio.to_thread(explained, greatest, spans)
    causes = {id(charge.meeting): charge.causes for charge in known}
    return [
        Charge(charge.meeting, charge.wait_ns, causes.get(id(charge.meeting), {"unknown": charge.wait_ns}))
        for charge in charges
    ]


async def _matches(
    store: TraceStore,
    key: RunKey,
    *,
    launch: str,
    found: Account,
    members: Sequence[Member],
    correction: Correction,
) -> Mapping[tuple[str, str, int], Match]:
    of = [(one.group, one.group_ranks, one.cseq) for one, _ in found.unmatched[:MOST_UNMATCHED]]
    if not of:
        return {}
    passed = await store.collectives.passed(key, launch, groups=sorted({group for group, _, _ in of}))
    at_ns: dict[int, int] = {}
    for member in members:
        at_ns[member.rank] = max(at_ns.get(member.rank, 0), member.heard_ns)
    heard = Heard(at_ns, {(row["group"], row["rank"]): row["last"] for row in passed})
    rows = await store.collectives.arrivals(key, launch, of=of, limit=MOST_ARRIVALS)
    matches = await asyncio.to_thread(matched, rows, correction, heard=heard)
    return {(match.group, match.group_ranks, match.cseq): match for match in matches}
