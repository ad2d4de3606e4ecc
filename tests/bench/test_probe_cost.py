"""What each probe level adds to a step of a transformer of 26 million parameters.

Level 0 is held to half a hundredth of that step, less than two trainings in turns differ by: what it adds is the same
whatever batch and width, taken of one short sequence and as many narrow layers, in time of the training thread.
"""

import gc
import statistics
import time
from collections.abc import Callable

import pytest
import torch

from rankscope import Run
from tests.bench.paired import WARM, Training, cost
from tests.bench.report import Report
from tests.bench.test_span_cost import NowhereExporter

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900), pytest.mark.usefixtures("kernel")]

PAIRS = 32

LEVEL_0_MS = 1.45
"""0.5 % of a step of 290 ms."""


@pytest.mark.parametrize(
    ("level", "every", "target"),
    [(1, 1, 15.0), (1, 10, 1.5), (2, 10, 5.0)],
    ids=["level 1, every step", "level 1, every 10th step", "level 2, every 10th step"],
)
def test_capturing(report: Report, level: int, every: int, target: float) -> None:
    plain, observed = Training(), Training()
    with Run(NowhereExporter()) as run:
        run.watch(
            observed.model,
            optimizer=observed.optimizer,
            loss=observed.criterion,
            level=level,
            every=every,
            budget=None,
        )

        def step(number: int) -> None:
            with run.step(number):
                observed.step()

        found = cost(plain, step, pairs=PAIRS, every=every)
    gc.collect()
    name = f"level {level}, {'every step' if every == 1 else f'every {every}th step'}"
    report.judge(f"probe {name}", 100 * found.share, "% of step", sense="at most", target=target)
    report.add("  a captured step", 100 * found.full, "% of step")
    report.add("  a plain step", found.plain_ms, "ms")


def test_level_0(report: Report) -> None:
    torch.set_num_threads(1)
    plain, observed = Training(width=64), Training(width=64)
    plain.tokens, observed.tokens = plain.tokens[:1, :8], observed.tokens[:1, :8]
    with Run(NowhereExporter()) as run:
        run.watch(observed.model, optimizer=observed.optimizer, loss=observed.criterion, level=0, budget=None)

        def step(number: int) -> None:
            with run.step(number):
                observed.step()

        added = [_cpu_ms(lambda number=number: step(number)) - _cpu_ms(plain.step) for number in range(4 * PAIRS)]
    report.judge(
        "probe level 0, added to a step", statistics.median(added[WARM:]), "ms", sense="at most", target=LEVEL_0_MS
    )


def _cpu_ms(work: Callable[[], None]) -> float:
    began = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - began)
