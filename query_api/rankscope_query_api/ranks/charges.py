"""Who made the others wait at a collective, for how long, and what that rank did meanwhile.

The last one to come is charged with what the others waited for it, and with nothing that it had received itself: what
it was freed later than they from the collective before was somebody else's doing, and is charged there. So of a chain
of late arrivals only the first counts. A charge is certain only where the last one came later than any other by more
than the clocks may err; all else is told as a sum that nobody is charged with.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rankscope_query_api.meetings import Meeting, OwnSpan, Stay
from rankscope_query_api.ranks.matching import is_complete

CAUSES = ("input", "forward", "backward", "optimizer", "gc", "checkpoint", "own_code", "unknown")
"""What a rank's own time is spent on. own_code: outside all that is traced; unknown: nothing of it is traced."""

Reason = Literal["incomplete", "duplicate", "op", "size", "unmeasured", "close"]
"""Why nobody is charged. incomplete: not all ranks of the group are known to have come; duplicate: a rank came twice;
op, size: they did not do the same; unmeasured: a clock was never measured; close: nearer than the clocks may err."""

UNMATCHED: frozenset[Reason] = frozenset({"incomplete", "duplicate", "op", "size"})
"""Those of which not even the sum of waits is known."""

_INNER_FIRST = ("gc", "checkpoint")
"""What counts for itself wherever it happens; phases get the rest."""


@dataclass(frozen=True, slots=True)
class Charge:
    """The wait of some ranks for another one at a collective.

    Attributes:
        meeting: The collective.
        wait_ns: Sum of the others' waits that is the last one's doing.
        causes: By cause: its part of `wait_ns`; none: not looked at.
    """

    meeting: Meeting
    wait_ns: int
    causes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def lost_ns(self) -> float:
        """What one of the others lost, on average."""
        return self.wait_ns / self.meeting.others


@dataclass(frozen=True, slots=True)
class Account:
    """What the waits at some collectives come to, in ns.

    Attributes:
        charges: What ranks are charged with, in the order of the collectives.
        received_ns: Waits that only passed on what came from a collective before.
        uncertain_ns: Waits for somebody, of whom it is not known who it was.
        transfer_ns: What the collectives themselves took after the last rank had come, where their end was told.
        reasons: How many collectives nobody is charged with, by why.
        unmatched: Those that did not come together.
    """

    charges: Sequence[Charge]
    received_ns: int
    uncertain_ns: int
    transfer_ns: int
    reasons: Mapping[Reason, int]
    unmatched: Sequence[tuple[Meeting, Reason]]

    @property
    def total_ns(self) -> int:
        """All waits that are known."""
        return self.received_ns + self.uncertain_ns + sum(charge.wait_ns for charge in self.charges)


def account(meetings: Iterable[Meeting]) -> Account:
    """Charges the last one of each collective."""
    charges, unmatched = list[Charge](), list[tuple[Meeting, Reason]]()
    reasons: defaultdict[Reason, int] = defaultdict(int)
    received = uncertain = transfer = 0
    sizes = dict[str, int]()
    for meeting in meetings:
        reason = why_uncertain(meeting, sizes)
        transfer += max(0, meeting.transfer_ns) if reason in {None, "close"} else 0
        if reason is None:
            received += meeting.received_ns
            charges.append(Charge(meeting, meeting.wait_ns - meeting.received_ns))
            continue
        reasons[reason] += 1
        if reason in UNMATCHED:
            unmatched.append((meeting, reason))
        else:
            uncertain += meeting.wait_ns if reason == "close" else max(0, meeting.stay_ns)
    # What ranks did differently first, then what has not come together, the latest first: the rest may be on its way.
    unmatched.sort(key=lambda one: (one[1] == "incomplete", -one[0].at_ns))
    return Account(charges, received, uncertain, transfer, reasons, unmatched)


def why_uncertain(meeting: Meeting, sizes: dict[str, int]) -> Reason | None:
    """Why nobody can be charged with the waits at a collective; None: the last one can.

    Args:
        meeting: The collective.
        sizes: Remembers how many ranks the groups have.
    """
    if meeting.arrivals > meeting.ranks:
        return "duplicate"
    if meeting.ops > 1:
        return "op"
    if meeting.sizes > 1:
        return "size"
    if not is_complete(meeting, sizes):
        return "incomplete"
    if meeting.unmeasured:
        return "unmeasured"
    return None if meeting.others and meeting.margin_ns > 0 else "close"


def explained(charges: Sequence[Charge], spans: Iterable[OwnSpan]) -> list[Charge]:
    """The charges with their causes.

    What the last one did between the collective before and this one is held against what the one in the middle did;
    the wait is divided as the excess is.
    """
    traced = _Traced(spans)
    return [replace(charge, causes=_causes(charge, traced)) for charge in charges]


def _causes(charge: Charge, traced: "_Traced") -> Mapping[str, int]:
    last, peer = charge.meeting.last, charge.meeting.peer
    own = traced.times(last)
    usual = traced.times(peer) if peer is not None else None
    if own is None:
        return {"unknown": charge.wait_ns}
    excess = {cause: max(0, spent - (usual or {}).get(cause, 0)) for cause, spent in own.items()}
    whole = sum(excess.values())
    if whole == 0:
        return {"unknown": charge.wait_ns}
    parts = {cause: charge.wait_ns * spent // whole for cause, spent in excess.items() if spent}
    greatest = max(parts, key=lambda cause: parts[cause])
    return {**parts, greatest: parts[greatest] + charge.wait_ns - sum(parts.values())}


class _Traced:
    """What was traced of processes' own time."""

    def __init__(self, spans: Iterable[OwnSpan]) -> None:
        found: defaultdict[str, list[OwnSpan]] = defaultdict(list)
        for span in spans:
            found[span.incarnation].append(span)
        self._spans = {
            incarnation: sorted(of_it, key=lambda span: span.start_ns) for incarnation, of_it in found.items()
        }
        self._starts = {incarnation: [span.start_ns for span in of_it] for incarnation, of_it in self._spans.items()}
        self._longest = {
            incarnation: max(span.end_ns - span.start_ns for span in of_it)
            for incarnation, of_it in self._spans.items()
        }

    def times(self, stay: Stay) -> Mapping[str, int] | None:
        """How long the rank did what before it came; None: nothing of it was traced, or when it began is not known."""
        within = self._within(stay) if stay.freed_ns else []
        if not within:
            return None
        taken, times = list[tuple[int, int]](), dict[str, int]()
        for cause in (*_INNER_FIRST, *(cause for cause in CAUSES if cause not in _INNER_FIRST)):
            pieces = [piece for span in within if span.cause == cause for piece in _rest(_cut(span, stay), taken)]
            times[cause] = sum(end - start for start, end in pieces)
            taken = _merged([*taken, *pieces])
        times["own_code"] = stay.entry_ns - stay.freed_ns - sum(end - start for start, end in taken)
        return {cause: spent for cause, spent in times.items() if spent > 0}

    def _within(self, stay: Stay) -> list[OwnSpan]:
        starts = self._starts.get(stay.incarnation, [])
        first = bisect_left(starts, stay.freed_ns - self._longest.get(stay.incarnation, 0))
        last = bisect_left(starts, stay.entry_ns)
        spans = self._spans.get(stay.incarnation, [])[first:last]
        return [span for span in spans if span.end_ns > stay.freed_ns]


def _cut(span: OwnSpan, stay: Stay) -> tuple[int, int]:
    return max(span.start_ns, stay.freed_ns), min(span.end_ns, stay.entry_ns)


def _rest(piece: tuple[int, int], taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """A piece of time without what is taken already, which is in order and apart."""
    left, (start, end) = list[tuple[int, int]](), piece
    for first, last in taken:
        if last <= start or first >= end:
            continue
        if first > start:
            left.append((start, first))
        start = last
    return [*left, (start, end)] if start < end else left


def _merged(pieces: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found = list[tuple[int, int]]()
    for start, end in sorted(pieces):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found
