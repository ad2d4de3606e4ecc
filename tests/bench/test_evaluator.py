"""What conditions cost the process they are evaluated in: one on 1,000 tensors, and a hundred on the rows of a step.

A hundred breakpoints may take a hundredth of a step of 290 ms, which is 29 µs each.
"""

import random
import statistics
import time
from collections.abc import Mapping

import pytest

from rankscope import tql
from rankscope.probe.rows import Columns, Numbers, Row, Subject
from rankscope.probe.tensors import Traits
from rankscope.tql import evaluate
from rankscope.tql.evaluate import Evaluator, LiveRows
from rankscope.tql.fields import Entity
from tests.bench.report import Report

pytestmark = pytest.mark.bench

TENSORS = 1_000
STEPS = 200
WARM = 80
"""Steps until the windows of `robust_z` are full, and every name has been seen."""

PREDICATES = (
    "tensor.l2 > 100",
    "tensor.nan_count > 0",
    'layer.type == "attention" and tensor.absmax > 8',
    'tensor.role == "grad" and tensor.l2 > 100 and rank in 0..7',
    'tensor.name =~ "layers[.][0-9]+[.]attn[.].*" and tensor.absmax > 8',
    "tensor.absmax / (tensor.l2 + 1) > 0.5",
    "tensor.l2 > 3 * prev(tensor.l2)",
    "tensor.l2 > 3 * ema(tensor.l2, 10)",
    "robust_z(tensor.l2) > 6",
)
TARGET_US = 300

ARMED, CAPTURED = 100, 300
BREAKPOINTS = (
    "tensor.nan_count > {}",
    'tensor.role == "grad" and tensor.l2 > {} and rank in 0..7',
    "tensor.absmax / (tensor.l2 + 1) > {}",
    "tensor.l2 > {} * prev(tensor.l2)",
    "robust_z(tensor.l2) > {}",
)
EVERY_NODE = 3
"""So many of them, the cheap ones, are armed for all nodes; all of them for one node each."""
ARMED_TARGET_US = 29


@pytest.fixture(scope="module")
def steps() -> list[Mapping[str, object]]:
    """The blocks of a probe, step by step, beside what the header says."""
    return blocks(TENSORS)


def blocks(tensors: int) -> list[Mapping[str, object]]:
    """Blocks of so many tensors."""
    chance, columns = random.Random(7), Columns()
    subjects = [
        Subject(f"layers.{at // 10}.attn.{at % 10}.weight", f"layers.{at // 10}", at // 10, "attention", 2)
        for at in range(tensors)
    ]
    traits = Traits("torch.bfloat16", (768, 768), "", 589_824, 589_824)
    made: list[Mapping[str, object]] = []
    for step in range(STEPS):
        rows = [
            Row(
                subject,
                traits,
                phase=3,
                flags=0,
                time_ns=1_795_971_713_000_000_000 + step,
                step=step,
                microstep=0,
                numbers=Numbers(0, 0, 0, chance.random(), chance.random() * 100),
            )
            for subject in subjects
        ]
        made.append({**columns.block(rows).columns, "rank": 3})
    return made


def cost_us(text: str, steps: list[Mapping[str, object]]) -> float:
    """Median of a step's evaluation, in µs of the processor: the machine's other work is no cost of a condition."""
    asked = Evaluator.of(tql.check(tql.parse(text)))
    spent: list[float] = []
    for batch in steps:
        started = time.thread_time()
        asked.matches(batch)
        spent.append(time.thread_time() - started)
    return statistics.median(spent[WARM:]) * 1e6


def test_one_predicate_on_a_thousand_tensors(
    steps: list[Mapping[str, object]], report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in PREDICATES:
        report.judge(f"{text}: 1,000 tensors", cost_us(text, steps), "µs", sense="at most", target=TARGET_US)
    monkeypatch.setattr(evaluate, "_engine", lambda: evaluate.PLAIN)
    for text in PREDICATES:
        report.add(f"  {text}, without numpy", cost_us(text, steps), "µs")


def test_a_hundred_breakpoints_on_the_rows_of_a_step(report: Report) -> None:
    made = blocks(CAPTURED)
    for number, text in enumerate(BREAKPOINTS):
        if number < EVERY_NODE:
            each = armed_us(text, made, of_one_node=False)
            report.judge(f"{text}: each of 100, 300 tensors", each, "µs", sense="at most", target=ARMED_TARGET_US)
        each = armed_us(text, made, of_one_node=True)
        report.judge(f"{text}: each of 100, a node each", each, "µs", sense="at most", target=ARMED_TARGET_US)


def armed_us(text: str, steps: list[Mapping[str, object]], *, of_one_node: bool) -> float:
    """Median of a step's evaluation of a hundred conditions that share its rows, in µs of the processor for each."""
    armed = [Evaluator.of(tql.check(tql.parse(text.format(100 + number)))) for number in range(ARMED)]
    spent: list[float] = []
    for batch in steps:
        started = time.thread_time()
        rows = LiveRows(Entity.TENSOR, batch)
        for node, condition in enumerate(armed):
            condition.matches(rows.at((node,)) if of_one_node else rows)
        spent.append(time.thread_time() - started)
    return statistics.median(spent[WARM:]) * 1e6 / ARMED
