"""Which rank makes the others wait: pure functions over the phase times of steps.

The accounting: in data-parallel training the ranks meet in the backward phase, so a rank's *wait* is its backward time
over the least of all ranks at that step, and it is *charged* to the rank with the longest own phases (input, forward,
optimizer). The slow rank waits least.

The difficulty is noise, not arithmetic. Four ranks on two cores move each other by a quarter of a step: in a measured
fault-free run one rank's forward lay 14 % of a step above the others' median over thirty steps. What tells a straggler
from that is that it is *always* the slowest, in *one phase*, by more than the ranks differ otherwise, *until the end*.
A candidate must pass each of the tests below; the thresholds are where 200 simulated clean runs have no finding
(`tests/query_api/test_findings.py`).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from rankscope_query_api.store import StepTimes

OWN_PHASES = ("input", "forward", "optimizer")
"""Phases in which a rank waits for nobody."""

WARM_UP_STEPS = 3
"""Steps at the beginning that are not judged: allocation and compilation happen in them."""

_LEAST_STEPS = 10
"""Steps a straggler must last. Being the slowest of four in 80 % of ten steps by chance: 0.04 %, before other tests."""

_ALWAYS = 0.8
"""Share of those steps in which it must be the slowest in its phase."""

_SHARE_OF_STEP = 0.05
"""Least excess in its phase, and least loss, as a share of the step."""

_OVER_OTHERS = 3.0
"""Its excess over the greatest excess that any other rank has in the same phase and steps."""

_OVER_NOISE = 4.0
"""Its excess over the standard error of the excess's median."""

_BLOCK = 4
"""Neighbouring steps are alike (a scheduler's choice lasts): so many of them count as one observation."""

_SIGMA_OF_MAD = 1.4826
_SIGMA_OF_MEDIAN = 1.2533

_TAIL_STEPS = 16
"""Steps at the end from which the size of an excess is guessed before its beginning is known."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that makes the others wait, from some step to the last one.

    Attributes:
        rank: The rank.
        since_step: First step of it.
        phase: The phase in which it is slow.
        steps: Steps judged since then.
        excess_ns: Median over these steps of its time in that phase over the other ranks' median.
        lost_ns: Median over these steps of the mean time the other ranks waited for it.
        share: `lost_ns` over the median duration of these steps, 0..1.
        charged_steps: Steps in which the waits were charged to it.
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
        slowest: By phase: per step, the rank with the longest time in it.
        waits: By rank: per step, its wait.
        charged: Per step, the rank with the longest own phases.
        totals: Per step, the longest duration of a rank's step.
    """

    steps: Sequence[int]
    ranks: Sequence[int]
    excess: Mapping[tuple[str, int], Sequence[float]]
    slowest: Mapping[str, Sequence[int]]
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
        if (straggler := _judge(table, phase, rank)) is not None
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
        slowest={phase: [ranks[values.index(max(values))] for values in steps] for phase, steps in phases.items()},
        waits=_waits(rows, ranks),
        charged=[max(step, key=_own_total).rank for step in rows],
        totals=[max(row.total_ns for row in step) for step in rows],
    )


def _own(row: StepTimes, phase: str) -> int:
    times = {"input": row.input_ns, "forward": row.forward_ns, "optimizer": row.optimizer_ns}
    return times[phase]


def _own_total(row: StepTimes) -> int:
    return row.input_ns + row.forward_ns + row.optimizer_ns


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


def _judge(table: _Table, phase: str, rank: int) -> Straggler | None:
    excess = table.excess[phase, rank]
    begin = _begin(excess)
    if begin is None or len(excess) - begin < _LEAST_STEPS:
        return None
    size = median(excess[begin:])
    step_ns = median(table.totals[begin:])
    always = table.slowest[phase][begin:].count(rank) / (len(excess) - begin)
    lost_ns = _lost(table, rank, begin)
    if (
        size < _SHARE_OF_STEP * step_ns
        or always < _ALWAYS
        or size < _OVER_OTHERS * _greatest_of_others(table, phase, rank, begin=begin)
        or size < _OVER_NOISE * _standard_error(excess[begin:])
        or lost_ns < _SHARE_OF_STEP * step_ns
        or Counter(table.charged[begin:]).most_common(1)[0][0] != rank
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
        charged_steps=table.charged[begin:].count(rank),
        phases_ns={own: round(median(table.excess[own, rank][begin:])) for own in OWN_PHASES},
        waits_ns={other: round(median(table.waits[other][begin:])) for other in table.ranks},
    )


def _begin(excess: Sequence[float]) -> int | None:
    """Index from which the excess is as large as at the end; None: it is not large there.

    Each step votes: +1 if its excess is more than half of the final size, -1 if not. The votes from the beginning to
    the end add up to most exactly there, whatever a few outliers say.
    """
    size = median(excess[-_TAIL_STEPS:])
    begin: int | None = None
    for _ in range(3):
        if size <= 0:
            return None
        votes = best = 0
        begin = None
        for index in range(len(excess) - 1, -1, -1):
            votes += 1 if excess[index] > size / 2 else -1
            if votes > best:
                best, begin = votes, index
        if begin is None:
            return None
        size = median(excess[begin:])
    return begin


def _greatest_of_others(table: _Table, phase: str, rank: int, *, begin: int) -> float:
    if len(table.ranks) == 2:
        return 0.0  # the other one's excess is this one's, negated
    return max(0.0, *(median(table.excess[phase, other][begin:]) for other in table.ranks if other != rank))


def _standard_error(values: Sequence[float]) -> float:
    middle = median(values)
    sigma = _SIGMA_OF_MAD * median(abs(value - middle) for value in values)
    return _SIGMA_OF_MEDIAN * sigma / sqrt(max(1.0, len(values) / _BLOCK))


def _lost(table: _Table, rank: int, begin: int) -> float:
    others = [table.waits[other] for other in table.ranks if other != rank]
    return median(
        sum(waits[index] for waits in others) / len(others) if table.charged[index] == rank else 0.0
        for index in range(begin, len(table.steps))
    )
