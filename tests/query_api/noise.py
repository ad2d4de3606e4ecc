"""Step times of simulated trainings on a machine that is never quiet.

The model, fitted by eye to recorded runs of four gloo ranks on two shared cores (forward 14 to 30 ms median, quartiles
as far apart as the median itself): each rank's forward is log-normal with a drift that lasts (AR(1) in its logarithm),
some steps are slow for all, single spikes are large. Ranks start a step together and meet in backward.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_query_api.meetings import Meeting, OwnSpan, Stay
from rankscope_query_api.values import StepTimes

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    """`rank` takes `delay_ms` longer in `phase` from `since` on."""

    rank: int
    since: int
    phase: str
    delay_ms: float


@dataclass(frozen=True, slots=True)
class Noise:
    """How loud it is.

    Attributes:
        sigma: Standard deviation of the logarithm of a forward time.
        drift: How much of a rank's deviation lasts to the next step, 0..1.
        spikes: Share of times that are 3 to 10 times as long.
        slow_steps: Share of steps that are slow for all ranks.
    """

    sigma: float = 0.45
    drift: float = 0.6
    spikes: float = 0.03
    slow_steps: float = 0.08


LOUD = (
    Noise(),
    Noise(sigma=0.6, drift=0.0),
    Noise(sigma=0.4, drift=0.8),
    Noise(spikes=0.12),
    Noise(slow_steps=0.3),
)
"""Loud in different ways."""


def training(
    seed: int, *, noise: Noise, ranks: int = 4, steps: int = 60, faults: Sequence[Fault] = ()
) -> list[StepTimes]:
    """The phase times of one training, by (step, rank)."""
    choose = random.Random(seed)
    deviation = [choose.gauss(0, noise.sigma) for _ in range(ranks)]
    rows: list[StepTimes] = []
    late = [0.0] * ranks
    for step in range(steps):
        common = choose.uniform(1.5, 3.0) if choose.random() < noise.slow_steps else 1.0
        common *= 8.0 if step == 0 else 1.0
        fresh = math.sqrt(1 - noise.drift**2) * noise.sigma
        deviation = [noise.drift * value + choose.gauss(0, fresh) for value in deviation]
        own = _own_times(choose, [common * math.exp(value) for value in deviation], spikes=noise.spikes)
        for fault in faults:
            if step >= fault.since:
                own[fault.rank][fault.phase] += fault.delay_ms * math.exp(choose.gauss(0, 0.1))
        rows += _met(choose, step, own, late=late)
        late = [times["optimizer"] for times in own]
    return rows


def _own_times(choose: random.Random, factors: Sequence[float], *, spikes: float) -> list[dict[str, float]]:
    own: list[dict[str, float]] = []
    for factor in factors:
        times = {
            "input": 0.3 * math.exp(choose.gauss(0, 0.6)),
            "forward": 20 * factor,
            "optimizer": 1.3 * math.exp(choose.gauss(0, 0.2)),
        }
        for phase in times:
            times[phase] *= choose.uniform(3, 10) if choose.random() < spikes else 1.0
        own.append(times)
    return own


def _met(
    choose: random.Random, step: int, own: Sequence[dict[str, float]], *, late: Sequence[float]
) -> list[StepTimes]:
    """The step in which ranks that start `late` and take their `own` times wait for one another in backward."""
    before = [start + times["input"] + times["forward"] for start, times in zip(late, own, strict=True)]
    end = max(value + 25 * math.exp(choose.gauss(0, 0.4)) for value in before) + 2
    return [
        StepTimes(
            step=step,
            rank=rank,
            total_ns=round((end - start + times["optimizer"]) * MS),
            input_ns=round(times["input"] * MS),
            forward_ns=round(times["forward"] * MS),
            backward_ns=round((end - value) * MS),
            optimizer_ns=round(times["optimizer"] * MS),
        )
        for rank, (start, times, value) in enumerate(zip(late, own, before, strict=True))
    ]


@dataclass(frozen=True, slots=True)
class Met:
    """The collectives of a training, one a step, and what its ranks did before each."""

    meetings: Sequence[Meeting]
    spans: Sequence[OwnSpan]


def met_at(
    times: Sequence[StepTimes], *, clock_error_ns: int = 0, seed: int = 0, period: Mapping[int, int] | None = None
) -> Met:
    """The collective of each step of a training, as the store would sum it up.

    Args:
        times: What `training` answers.
        clock_error_ns: Bound of every clock's error; each is off by a constant that lies within it.
        seed: Of those errors.
        period: By rank, of which steps only every k-th has its input late: in the others it is as of the other ranks.
    """
    choose = random.Random(seed)
    by_step: dict[int, list[StepTimes]] = {}
    for row in times:
        by_step.setdefault(row.step, []).append(row)
    off = [choose.randint(-clock_error_ns, clock_error_ns) for _ in by_step[min(by_step)]]
    begin, late = 0, [0] * len(off)
    meetings, spans = list[Meeting](), list[OwnSpan]()
    for step, rows in sorted(by_step.items()):
        entries = list[int]()
        for row in rows:
            at = begin + off[row.rank]
            input_ns = row.input_ns if _is_slow(row, period) else MS // 3
            for cause, spent in (("optimizer", late[row.rank]), ("input", input_ns), ("forward", row.forward_ns)):
                spans.append(OwnSpan(str(row.rank), cause, at, at + spent))
                at += spent
            entries.append(at)
        meetings.append(met(step, entries, freed=[begin + shift for shift in off], error_ns=clock_error_ns))
        begin = max(entries) + 25 * MS
        late = [row.optimizer_ns for row in rows]
    return Met(meetings, spans)


def _is_slow(row: StepTimes, period: Mapping[int, int] | None) -> bool:
    every = (period or {}).get(row.rank)
    return every is None or row.step % every == 0


def met(step: int, entries: Sequence[int], *, freed: Sequence[int], error_ns: int = 0) -> Meeting:
    """One collective that ranks entered then, each after it was freed from the one before."""
    order = sorted(range(len(entries)), key=lambda rank: entries[rank])
    last, rest = order[-1], order[:-1]
    middle = rest[(len(rest) - 1) // 2]
    late = [max(0, freed[last] - freed[rank]) for rank in rest]
    waits = [entries[last] - entries[rank] for rank in rest]
    return Meeting(
        group="0",
        group_ranks=f"0-{len(entries) - 1}",
        cseq=step + 1,
        step=step,
        op="all_reduce",
        arrivals=len(entries),
        ranks=len(entries),
        processes=len(entries),
        ops=1,
        sizes=1,
        unmeasured=0,
        at_ns=entries[last],
        key=last,
        last=Stay(str(last), last, freed[last], entries[last]),
        peer=Stay(str(middle), middle, freed[middle], entries[middle]),
        others=len(rest),
        wait_ns=sum(waits),
        received_ns=sum(map(min, waits, late)),
        margin_ns=waits[-1] - 2 * error_ns,
        spread_ns=entries[rest[-1]] - entries[middle],
        transfer_ns=-1,
        stay_ns=-1,
    )
