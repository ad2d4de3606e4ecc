"""What statistics of a tensor cost, in passes over its memory: the whole table beside one `sum`, in one process."""

import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from rankscope.probe.statistics import norms, table, tables
from rankscope.probe.statistics.blocked import blocked
from tests.bench.paired import Transformer
from tests.bench.report import Report

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600), pytest.mark.usefixtures("kernel")]

SIZES = {
    "64 KiB": 1 << 16,
    "256 KiB": 1 << 18,
    "1 MiB": 1 << 20,
    "4 MiB": 1 << 22,
    "16 MiB": 1 << 24,
    "64 MiB": 1 << 26,
}
SMALL = 200


def passes(measure: Callable[[], object], reading: Callable[[], object], *, repeat: int, rounds: int = 41) -> float:
    """How many times as long as `reading` it takes: the median over rounds, in each of which both are timed in turns.

    Whatever else the machine does in a round is beside both, and a median leaves out the rounds that it spoils.
    """
    ratios: list[float] = []
    for turn in range(rounds):
        took: dict[bool, float] = {}
        for is_reading in (True, False) if turn % 2 else (False, True):
            act = reading if is_reading else measure
            began = time.perf_counter()
            for _ in range(repeat):
                act()
            took[is_reading] = time.perf_counter() - began
        ratios.append(took[False] / took[True])
    return statistics.median(ratios)


@contextmanager
def with_threads(many: int) -> Generator[None]:
    """Both sides have as many threads: `sum` divides a tensor of 32,768 elements or more, the kernel one of 131,072."""
    before = torch.get_num_threads()
    torch.set_num_threads(many)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def of_bytes(size: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(size // dtype.itemsize, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_table_of_one_tensor(report: Report, size: str, threads: int) -> None:
    with with_threads(threads):
        values = of_bytes(SIZES[size], torch.float32)
        repeat = max(1, (1 << 22) // SIZES[size])
        found = passes(lambda: table(values), values.sum, repeat=repeat)
        report.judge(f"table of float32, {size}, threads {threads}", found, "passes", sense="at most", target=4.0)
        rectified = values.relu()
        report.add("  half of it zero", passes(lambda: table(rectified), rectified.sum, repeat=repeat), "passes")


@pytest.mark.parametrize("size", ["64 KiB", "1 MiB", "16 MiB"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64], ids=str)
def test_the_table_of_other_types(report: Report, dtype: torch.dtype, size: str) -> None:
    with with_threads(1):
        values = of_bytes(SIZES[size], dtype)
        repeat = max(1, (1 << 22) // SIZES[size])
        found = passes(lambda: table(values), values.sum, repeat=repeat)
        report.judge(f"table of {dtype}, {size}, threads 1", found, "passes", sense="at most", target=4.0)


def test_the_table_in_torch_alone(report: Report) -> None:
    values = of_bytes(1 << 20, torch.float32)
    report.add("table without a kernel, 1 MiB", passes(lambda: blocked(values), values.sum, repeat=1), "passes")


@pytest.mark.parametrize("elements", [1, 768, 8_192])
def test_small_tensors_in_a_list(report: Report, elements: int) -> None:
    values = [torch.randn(elements) for _ in range(SMALL)]
    best = float("inf")
    for _ in range(50):
        began = time.perf_counter()
        tables(values)
        best = min(best, time.perf_counter() - began)
    report.judge(
        f"table of a tensor of {elements:,}, in a list", 1e6 * best / SMALL, "µs", sense="at most", target=20.0
    )


def test_all_parameters_of_a_model(report: Report) -> None:
    parameters = [each.detach() for each in Transformer().parameters()]

    def read() -> None:
        for each in parameters:
            each.sum()

    level_1 = passes(lambda: norms(parameters), read, repeat=1, rounds=30)
    report.judge("level 1 of all parameters of 26 M", level_1, "passes", sense="at most", target=2.5)
    report.add("level 2 of the same", passes(lambda: tables(parameters), read, repeat=1, rounds=30), "passes")
