"""Which rank makes the others wait: pure functions over the phase times of steps.

The accounting: in data-parallel training the ranks meet in the backward phase, so a rank's *wait* is its backward time
over the least of all ranks at that step, and it is *charged* to the rank with the longest own phases since the ranks
met last: the optimizer of the step before, input, forward. The slow rank waits least.

The difficulty is noise, not arithmetic. Four ranks on two cores move each other by a quarter of a step: in a measured
fault-free run one rank's forward lay 14 % of a step above the others' median over thirty steps. What tells a straggler
from that is that it is *always* the slowest, in *one phase*, by more than the ranks differ otherwise, *until the end*.
A candidate must pass each of the tests below; the thresholds are where 200 simulated clean runs have no finding
(`tests/query_api/test_findings.py`).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import pi, sin
from statistics import median

from rankscope_query_api.onset import SIGMA_OF_MAD, WARM_UP_STEPS, onset
from rankscope_query_api.values import StepTimes

OWN_PHASES = ("input", "forward", "optimizer")
"""Phases in which a rank waits for nobody."""

_LEAST_STEPS = 10
"""Steps a straggler must last before it is called one."""

_ALWAYS = 0.8
"""Share of those steps in which its excess must be more than half of what it usually is."""

_CHARGED = 0.5
"""Share of those steps whose waits must be charged to it: otherwise others hold the step up as much."""

_SHARE_OF_STEP = 0.05
"""Least excess in its phase, and least loss, as a share of the step."""

_OVER_OTHERS = 3.0
"""Its excess over the greatest excess that any other rank has in the same phase and steps."""

_OVER_NOISE = 2.5
"""Its excess over the deviation of excesses that are no fault (the other ranks' then, and its own before), times
1 + r, r being how far a step's deviation lasts to the next: what a scheduler does for many steps is no fault either."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that makes the others wait, from some step to the last one.

    Attributes:
        rank: The rank.
        since_step: First step of it.
        phase: The phase in which it is slow.
        steps: Steps judged since then.
        excess_ns: Median over these steps of its time in that phase over the other ranks' median.
        lost_ns: Median, over the steps charged to it, of the mean time the other ranks waited.
        share: `lost_ns` over the median duration of these steps, 0..1.
        charged_steps: Steps whose waits were charged to it.
        phases_ns: Its excess in each own phase, as `excess_ns`.
        waits_ns: Median wait of each rank over these steps.
    """

    rank: int
    since_step: int
    phase: str
    steps: int
    excess_ns: int
    lost_ns: int
    share: float
    charged_steps: int
    phases_ns: Mapping[str, int]
    waits_ns: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Table:
    """The judged steps: those that all ranks have, warm-up left out.

    Attributes:
        steps: Step numbers, ascending.
        ranks: Ranks, ascending.
        excess: By (phase, rank): per step, the rank's time in the phase over the other ranks' median.
        waits: By rank: per step, its wait.
        charged: Per step, the rank with the longest own phases; -1: the step before it is not there.
        totals: Per step, the longest duration of a rank's step.
    """

    steps: Sequence[int]
    ranks: Sequence[int]
    excess: Mapping[tuple[str, int], Sequence[float]]
    waits: Mapping[int, Sequence[int]]
    charged: Sequence[int]
    totals: Sequence[int]


def find_straggler(times: Sequence[StepTimes]) -> Straggler | None:
    """The rank that made the others wait until the end of these steps, if there is one.

    Args:
        times: Phase times of one launch, any number of ranks and steps, in any order.
    """
    table = _tabulate(times)
    if table is None or len(table.steps) < _LEAST_STEPS:
        return None
    found = [
        straggler
        for phase in OWN_PHASES
        for rank in table.ranks
        if (straggler := _judge(table, phase, rank=rank)) is not None
    ]
    return max(found, key=lambda straggler: straggler.excess_ns, default=None)


def _tabulate(times: Sequence[StepTimes]) -> _Table | None:
    by_step: defaultdict[int, dict[int, StepTimes]] = defaultdict(dict)
    for row in times:
        by_step[row.step][row.rank] = row
    ranks = sorted({row.rank for row in times})
    first = min(by_step, default=0) + WARM_UP_STEPS
    steps = [step for step in sorted(by_step) if step >= first and len(by_step[step]) == len(ranks)]
    if len(ranks) < 2:
        return None
    rows = [[by_step[step][rank] for rank in ranks] for step in steps]
    phases = {phase: [[_own(row, phase) for row in step] for step in rows] for phase in OWN_PHASES}
    excesses = {phase: [_over_others(values) for values in steps] for phase, steps in phases.items()}
    return _Table(
        steps=steps,
        ranks=ranks,
        excess={
            (phase, rank): [values[column] for values in excesses[phase]]
            for phase in OWN_PHASES
            for column, rank in enumerate(ranks)
        },
        waits=_waits(rows, ranks),
        charged=[_latest(by_step[step - 1], by_step[step]) if step - 1 in by_step else -1 for step in steps],
        totals=[max(row.total_ns for row in step) for step in rows],
    )


def _own(row: StepTimes, phase: str) -> int:
    times = {"input": row.input_ns, "forward": row.forward_ns, "optimizer": row.optimizer_ns}
    return times[phase]


def _latest(before: Mapping[int, StepTimes], now: Mapping[int, StepTimes]) -> int:
    """The rank that comes last to backward: its own phases since the ranks met are the optimizer's, input, forward."""
    arrivals = {
        rank: row.input_ns + row.forward_ns + (before[rank].optimizer_ns if rank in before else 0)
        for rank, row in now.items()
    }
    return max(arrivals, key=lambda rank: (arrivals[rank], -rank))


def _waits(rows: Sequence[Sequence[StepTimes]], ranks: Sequence[int]) -> dict[int, list[int]]:
    waits: dict[int, list[int]] = {rank: [] for rank in ranks}
    for step in rows:
        least = min(row.backward_ns for row in step)
        for row in step:
            waits[row.rank].append(row.backward_ns - least)
    return waits


def _over_others(values: Sequence[int]) -> list[float]:
    """Each value minus the median of the others."""
    ordered = sorted(values)
    count = len(ordered)
    result: list[float] = []
    for value in values:
        # Without the value itself, what stands after its place in the order moves down by one.
        place = bisect_left(ordered, value)
        middle = (count - 1) // 2
        upper = ordered[middle if middle < place else middle + 1]
        if (count - 1) % 2:
            result.append(value - upper)
            continue
        lower = ordered[middle - 1 if middle - 1 < place else middle]
        result.append(value - (lower + upper) / 2)
    return result


def _judge(table: _Table, phase: str, *, rank: int) -> Straggler | None:
    excess = table.excess[phase, rank]
    begin = onset(excess)
    if begin is None or len(excess) - begin < _LEAST_STEPS:
        return None
    size = median(excess[begin:])
    step_ns = median(table.totals[begin:])
    always = sum(value > size / 2 for value in excess[begin:]) / (len(excess) - begin)
    charged = table.charged[begin:].count(rank)
    lost_ns = _lost(table, rank, begin=begin)
    if (
        size < _SHARE_OF_STEP * step_ns
        or always < _ALWAYS
        or size < _OVER_NOISE * _deviation(table, phase, rank=rank, begin=begin)
        or size < _OVER_OTHERS * _greatest_of_others(table, phase, rank=rank, begin=begin)
        or charged < _CHARGED * (len(excess) - begin)
        or lost_ns < _SHARE_OF_STEP * step_ns
    ):
        return None
    return Straggler(
        rank=rank,
        since_step=table.steps[begin],
        phase=phase,
        steps=len(excess) - begin,
        excess_ns=round(size),
        lost_ns=round(lost_ns),
        share=lost_ns / step_ns,
        charged_steps=charged,
        phases_ns={own: round(median(table.excess[own, rank][begin:])) for own in OWN_PHASES},
        waits_ns={other: round(median(table.waits[other][begin:])) for other in table.ranks},
    )


def _greatest_of_others(table: _Table, phase: str, *, rank: int, begin: int) -> float:
    if len(table.ranks) == 2:
        return 0.0  # the other one's excess is this one's, negated
    return max(0.0, *(median(table.excess[phase, other][begin:]) for other in table.ranks if other != rank))


def _deviation(table: _Table, phase: str, *, rank: int, begin: int) -> float:
    others = [table.excess[phase, other][begin:] for other in table.ranks if other != rank]
    samples = [] if len(others) == 1 else others  # of two ranks, the other's excess is this one's, negated
    if begin >= _LEAST_STEPS or not samples:
        samples.append(table.excess[phase, rank][:begin] or table.excess[phase, rank])
    return max(SIGMA_OF_MAD * _mad(values) for values in samples) * (1 + _persistence(samples))


def _mad(values: Sequence[float]) -> float:
    middle = median(values)
    return median(abs(value - middle) for value in values)


def _persistence(samples: Sequence[Sequence[float]]) -> float:
    """Correlation of neighbouring steps, 0..1, from how often both lie on one side of the median."""
    same = pairs = 0
    for values in samples:
        middle = median(values)
        sides = [value > middle for value in values]
        same += sum(one == other for one, other in pairwise(sides))
        pairs += len(sides) - 1
    return max(0.0, sin(pi * (same / pairs - 0.5))) if pairs > 0 else 0.0


def _lost(table: _Table, rank: int, *, begin: int) -> float:
    """Median, over the steps charged to a rank, of the mean time the others waited."""
    others = [table.waits[other] for other in table.ranks if other != rank]
    waits = [
        sum(wait[index] for wait in others) / len(others)
        for index in range(begin, len(table.steps))
        if table.charged[index] == rank
    ]
    return median(waits or [0.0])
