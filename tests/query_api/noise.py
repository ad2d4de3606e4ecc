"""Step times of simulated trainings on a machine that is never quiet.

The model, fitted by eye to recorded runs of four gloo ranks on two shared cores (forward 14 to 30 ms median, quartiles
as far apart as the median itself): each rank's forward is log-normal with a drift that lasts (AR(1) in its logarithm),
some steps are slow for all, single spikes are large. Ranks start a step together and meet in backward.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

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
