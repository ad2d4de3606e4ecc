"""What a hundred relaxed breakpoints add to a step of a transformer of 26 million parameters.

The tensors are measured in every step anyway, so that what is added is judging: the rows of a step as columns,
and a hundred conditions asked of them. It is timed where it happens, in time of the training thread: a
hundredth of a step is less than what two trainings in turns differ by on a machine with other work.
"""

import gc
import statistics
import time
from collections.abc import Sequence

import pytest
import torch

from rankscope import Run
from rankscope.probe import LocalProbe, Trigger
from rankscope.probe.rows import Row
from tests.bench.paired import WARM, Training
from tests.bench.report import Report
from tests.bench.test_span_cost import NowhereExporter

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900), pytest.mark.usefixtures("kernel")]

ARMED, STEPS = 100, 24
CONDITIONS = (
    'tensor.role == "grad" and tensor.l2 > 1e6',
    "tensor.nan_count > 0 or tensor.inf_count > 0",
    'tensor.role == "grad" and tensor.l2 > 1000 * prev(tensor.l2)',
    'tensor.role == "weight" and robust_z(tensor.absmax) > 1e6',
)
TARGET_MS = 2.9
"""A hundredth of that step."""


class Judged:
    """Times what the breakpoints of a probe do when a step ends."""

    def __init__(self, probe: LocalProbe) -> None:
        self._settled = probe.breakpoints.settled
        self.seconds: list[float] = []
        self.rows = 0
        probe.breakpoints.settled = self.settled

    def settled(self, rows: Sequence[Row]) -> None:
        """Judges the rows."""
        began = time.thread_time()
        self._settled(rows)
        self.seconds.append(time.thread_time() - began)
        self.rows = max(self.rows, len(rows))


@pytest.mark.parametrize("each", [True, False], ids=["of a tensor each", "of all tensors each"])
def test_a_hundred_relaxed_breakpoints(report: Report, *, each: bool) -> None:
    torch.set_num_threads(1)
    training = Training()
    training.tokens = training.tokens[:1, :8]
    with Run(NowhereExporter()) as run:
        probe = run.watch(training.model, loss=training.criterion, level=1, every=1, budget=None)
        judged = Judged(probe)
        nodes = [name for name, _ in training.model.named_parameters()]
        for place in range(ARMED):
            node = nodes[place % len(nodes)] if each else "*"
            probe.set_breakpoint(Trigger(node=node, predicate=CONDITIONS[place % (len(CONDITIONS) if each else 2)]))
        for number in range(STEPS):
            with run.step(number):
                training.step()
    assert judged.rows >= len(nodes)
    gc.collect()
    name = f"100 relaxed breakpoints {'of a tensor each' if each else 'of all tensors each'}"
    report.judge(name, 1e3 * statistics.median(judged.seconds[WARM:STEPS]), "ms", sense="at most", target=TARGET_MS)
    report.add("  rows of a step", judged.rows, "rows")
