"""What each probe level adds to a step of a transformer of 26 million parameters."""

import gc

import pytest

from rankscope import Run
from tests.bench.paired import Training, cost
from tests.bench.report import Report
from tests.bench.test_span_cost import NowhereExporter

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900), pytest.mark.usefixtures("kernel")]

PAIRS = 32


@pytest.mark.parametrize(
    ("level", "every", "target"),
    [(0, 1, 0.5), (1, 1, 15.0), (1, 10, 1.5), (2, 10, 5.0)],
    ids=["level 0", "level 1, every step", "level 1, every 10th step", "level 2, every 10th step"],
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
