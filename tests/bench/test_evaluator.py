"""What a condition costs the process it is evaluated in: one predicate on the statistics of 1,000 tensors."""

import random
import statistics
import time
from collections.abc import Mapping

import pytest

from rankscope import tql
from rankscope.probe.rows import Columns, Numbers, Row, Subject
from rankscope.probe.tensors import Traits
from rankscope.tql import evaluate
from rankscope.tql.evaluate import Evaluator
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
)
DEAREST = "robust_z(tensor.l2) > 6"
TARGET_US = 300


@pytest.fixture(scope="module")
def steps() -> list[Mapping[str, object]]:
    """The blocks of a probe, step by step, beside what the header says."""
    chance, columns = random.Random(7), Columns()
    subjects = [
        Subject(f"layers.{at // 10}.attn.{at % 10}.weight", f"layers.{at // 10}", at // 10, "attention", 2)
        for at in range(TENSORS)
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
    """Median of a step's evaluation, in µs."""
    asked = Evaluator.of(tql.check(tql.parse(text)))
    spent: list[float] = []
    for batch in steps:
        started = time.perf_counter()
        asked.matches(batch)
        spent.append(time.perf_counter() - started)
    return statistics.median(spent[WARM:]) * 1e6


def test_one_predicate_on_a_thousand_tensors(
    steps: list[Mapping[str, object]], report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in PREDICATES:
        report.judge(f"{text}: 1,000 tensors", cost_us(text, steps), "µs", sense="at most", target=TARGET_US)
    report.add(f"  {DEAREST}, of 64 earlier values", cost_us(DEAREST, steps), "µs")
    monkeypatch.setattr(evaluate, "_engine", lambda: evaluate.PLAIN)
    for text in (*PREDICATES, DEAREST):
        report.add(f"  {text}, without numpy", cost_us(text, steps), "µs")
