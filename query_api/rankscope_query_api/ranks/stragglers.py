"""Who makes the others wait again and again: in every step, or in every k-th, from some step to the last.

In a clean run somebody is last at every collective, too, by as much as the machine is loud. What tells a straggler
from that is that it is charged *nearly always* in its steps, by *more than anybody otherwise*, by *more than the others
differ*, *until the end*. A candidate must pass each of the tests of `_judge`; the thresholds are where simulated clean
runs on a loud machine have no finding (`tests/query_api/test_stragglers.py`), and every one of them is shown.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log, pi, sin
from statistics import median

from rankscope_query_api.meetings import Meeting
from rankscope_query_api.onset import SIGMA_OF_MAD, onset
from rankscope_query_api.ranks.charges import CAUSES, Charge

_APART = frozenset({"input", "optimizer", "gc", "checkpoint"})
"""Causes that computing does not blur."""

_NEARLY_ALL = 0.8
"""Share of the steps of the longest recurrence."""

_FEWEST = 5
"""Fewer other steps than these do not say how loud a run is."""

_LOUD = 0.9
"""The loss that nine of ten of the other steps do not have stands for how loud a run is."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a rank is called a straggler.

    Attributes:
        share: Least loss of the others in its steps, as a share of the step.
        steps: Least steps that it lasts, where it is slow in each.
        times: Least times that it comes, where it is slow in every k-th.
        always: Share of its steps in which it must be charged with more than half of what it usually is.
        over_others: Its loss over what somebody is charged with in other steps, and over what the others differ by.
        over_deviation: Its loss over the deviation of it, times 1 + r, r being how far a deviation lasts.
        confidence: Least confidence.
        every: Greatest k.
    """

    share: float = 0.02
    steps: int = 10
    times: int = 5
    always: float = 0.7
    over_others: float = 2.5
    over_deviation: float = 2.0
    confidence: float = 0.99
    every: int = 20


DEFAULT = Thresholds()


@dataclass(frozen=True, slots=True)
class Losses:
    """What the others lost at each step, in ns.

    Attributes:
        steps: Step numbers, ascending.
        step_ns: How long a step takes.
        by_key: By whom it is counted for: per step, what one of the others lost by it, on average; 0: nothing.
        spreads: Per step, by how much the last of the others came later than the one in the middle.
        keys: How many there are that something could be counted for.
    """

    steps: Sequence[int]
    step_ns: int
    by_key: Mapping[int, Sequence[float]]
    spreads: Sequence[float]
    keys: int


@dataclass(frozen=True, slots=True)
class Recurrence:
    """How somebody makes the others wait.

    Attributes:
        every: In every k-th step; 1: in each.
        since_step: The first of them.
        steps: How many there are.
        hits: In how many it is charged with more than half of `lost_ns`.
        lost_ns: Median of what one of the others lost in them.
        share: That over the step, 0..1.
        confidence: 1 less the greatest chance that so many hits came up by themselves, over all that was tried.
        cause: By what alone it was found; "": by all together.
    """

    every: int
    since_step: int
    steps: int
    hits: int
    lost_ns: int
    share: float
    confidence: float
    cause: str = ""


def losses_of(
    meetings: Sequence[Meeting], charges: Sequence[Charge], *, keys: int, first: int, cause: str | None = None
) -> Losses:
    """What the others lost at each step from `first` on, by whom it is counted for.

    Args:
        meetings: The collectives, of any number of groups.
        charges: What ranks are charged with for them.
        keys: How many there are that something could be counted for.
        first: Steps before it are left out.
        cause: What is lost by that alone; None: whatever it is lost by.
    """
    latest, spreads = dict[int, int](), defaultdict[int, float](float)
    for meeting in meetings:
        if meeting.step is not None and meeting.step >= first:
            latest[meeting.step] = max(latest.get(meeting.step, meeting.at_ns), meeting.at_ns)
            spreads[meeting.step] = max(spreads[meeting.step], meeting.spread_ns)
    steps = sorted(latest)
    places = {step: place for place, step in enumerate(steps)}
    by_key = defaultdict[int, list[float]](lambda: [0.0] * len(steps))
    for charge in charges:
        lost_ns = charge.lost_ns if cause is None else charge.causes.get(cause, 0) / charge.meeting.others
        if lost_ns > 0 and charge.meeting.step in places:
            by_key[charge.meeting.key][places[charge.meeting.step]] += lost_ns
    took = [(latest[after] - latest[before]) / (after - before) for before, after in pairwise(steps)]
    # What ranks differ by when they come is how loud their computing is: an input that is late is not measured by it.
    loud = [0.0 if cause in _APART else spreads[step] for step in steps]
    return Losses(steps, round(median(took or [0])), by_key, loud, keys)


def find_stragglers(
    meetings: Sequence[Meeting],
    charges: Sequence[Charge],
    *,
    keys: int,
    first: int,
    thresholds: Thresholds = DEFAULT,
) -> Mapping[int, Recurrence]:
    """Those who make the others wait until the last step, by whom they are counted for.

    What is lost by one cause alone is looked at beside the whole: a late input does not drown in loud computing.

    Args:
        meetings: As in `losses_of`.
        charges: As there, with their causes where they are known.
        keys: As there.
        first: As there.
        thresholds: From where on somebody is called so.
    """
    found = defaultdict[int, list[Recurrence]](list)
    for cause in (None, *(one for one in CAUSES if one != "unknown")):
        losses = losses_of(meetings, charges, keys=keys, first=first, cause=cause)
        if losses.step_ns <= 0:
            continue
        table = _Table(losses)
        for key in losses.by_key:
            recurrence = _recurrence(table, key, thresholds=thresholds)
            if recurrence is not None:
                found[key].append(replace(recurrence, cause=cause or ""))
    return {key: _most_telling(told) for key, told in found.items()}


def _most_telling(told: Sequence[Recurrence]) -> Recurrence:
    """The greatest by one cause, unless all causes together explain more steps by far: of a few none may be known."""
    most = max(one.steps for one in told)
    long = [one for one in told if one.steps >= _NEARLY_ALL * most]
    return max(long, key=lambda one: (one.cause != "", one.lost_ns))


class _Table:
    """The losses, and beside each key's the greatest of any other at that step."""

    def __init__(self, losses: Losses) -> None:
        self.losses = losses
        count = len(losses.steps)
        greatest, second, whose = [0.0] * count, [0.0] * count, [-1] * count
        for key, values in losses.by_key.items():
            for at, value in enumerate(values):
                if value > greatest[at]:
                    greatest[at], second[at], whose[at] = value, greatest[at], key
                elif value > second[at]:
                    second[at] = value
        self._greatest, self._second, self._whose = greatest, second, whose

    def of_others(self, key: int, at: int) -> float:
        """The greatest loss by anybody else at a step."""
        return self._second[at] if self._whose[at] == key else self._greatest[at]

    def of_anybody(self, at: int) -> float:
        """The greatest loss at a step."""
        return self._greatest[at]


def _recurrence(table: _Table, key: int, *, thresholds: Thresholds) -> Recurrence | None:
    """The shortest period that explains what somebody is charged with."""
    values = table.losses.by_key[key]
    if sum(value > 0 for value in values) < thresholds.times:
        return None
    for every in range(1, thresholds.every + 1):
        least = thresholds.steps if every == 1 else thresholds.times
        for phase in range(every):
            # Steps are numbers, not places: one that is missing does not move those behind it.
            places = [at for at, step in enumerate(table.losses.steps) if step % every == phase]
            if sum(values[at] > 0 for at in places) < least * thresholds.always:
                continue
            found = _judge(table, key, places=places, every=every, thresholds=thresholds)
            if found is not None:
                return found
    return None


def _judge(table: _Table, key: int, *, places: Sequence[int], every: int, thresholds: Thresholds) -> Recurrence | None:
    all_values = table.losses.by_key[key]
    begin = onset([all_values[at] for at in places])
    least = thresholds.steps if every == 1 else thresholds.times
    if begin is None or len(places) - begin < least:
        return None
    inside = places[begin:]
    values = [all_values[at] for at in inside]
    size = median(values)
    hits = sum(value > size / 2 for value in values)
    if (
        size < thresholds.share * table.losses.step_ns
        or hits < thresholds.always * len(values)
        or size < thresholds.over_others * _elsewhere(table, set(inside), since=inside[0], every=every)
        or size < thresholds.over_others * median(table.losses.spreads[at] for at in inside)
        or size < thresholds.over_deviation * _deviation(values)
    ):
        return None
    confidence = _confidence(table, key, inside=inside, size=size, hits=hits, every=thresholds.every)
    if confidence < thresholds.confidence:
        return None
    return Recurrence(
        every=every,
        since_step=table.losses.steps[inside[0]],
        steps=len(inside),
        hits=hits,
        lost_ns=round(size),
        share=size / table.losses.step_ns,
        confidence=confidence,
    )


def _elsewhere(table: _Table, inside: set[int], *, since: int, every: int) -> float:
    """What somebody is charged with in steps that are not the candidate's: those before it, and those between."""
    count = len(table.losses.steps)
    outside = [at for at in range(count) if at not in inside and (every > 1 or at < since)]
    values = sorted(table.of_anybody(at) for at in outside)
    return values[int(_LOUD * len(values))] if len(values) >= _FEWEST else 0.0


def _deviation(values: Sequence[float]) -> float:
    middle = median(values)
    return SIGMA_OF_MAD * median(abs(value - middle) for value in values) * (1 + _persistence(values, middle))


def _persistence(values: Sequence[float], middle: float) -> float:
    """Correlation of neighbouring steps, 0..1, from how often both lie on one side of the median."""
    sides = [value > middle for value in values]
    same = sum(one == other for one, other in pairwise(sides))
    return max(0.0, sin(pi * (same / (len(sides) - 1) - 0.5))) if len(sides) > 1 else 0.0


def _confidence(table: _Table, key: int, *, inside: Sequence[int], size: float, hits: int, every: int) -> float:
    """1 less the chance of the hits, were each as likely as anywhere else, over all that is tried."""
    count, own = len(table.losses.steps), table.losses.by_key[key]
    within = set(inside)
    outside = [at for at in range(count) if at not in within]
    alike = sum(own[at] > size / 2 for at in outside) + sum(table.of_others(key, at) > size / 2 for at in range(count))
    chance = (alike + 1) / (len(outside) + count + 2)
    # Chernoff's bound of the tail: exact where every step is a hit, never too small.
    tail = exp(-len(inside) * _divergence(hits / len(inside), chance)) if hits > chance * len(inside) else 1.0
    tried = len(CAUSES) * every * (every + 1) // 2 * max(1, table.losses.keys)
    return max(0.0, 1.0 - tail * tried)


def _divergence(share: float, chance: float) -> float:
    """Kullback and Leibler's, of a coin that shows heads so often from one that should by chance."""
    heads = share * log(share / chance) if share > 0 else 0.0
    return heads + ((1 - share) * log((1 - share) / (1 - chance)) if share < 1 else 0.0)
