"""What recording adds to a collective: the same steps with and without it, in turns.

In time of the training's thread, with a gloo group of one rank, whose all_reduce takes 10 µs: the least there is to
hide behind. What other threads do beside it (unpickle what torch's recorder holds, make rows and seal them) is told
as well, in time of the whole process: on a machine without an idle core it delays training, too.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from rankscope import Run
from rankscope._gc_spans import CollectionSpans
from rankscope.collectives.attach import Collectives
from rankscope.collectives.recorder import SIZE_VARIABLES
from tests.agent.collectives.alone import group_of_one
from tests.bench.report import Report
from tests.bench.test_span_cost import NowhereExporter

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

dist: Any = torch.distributed
CALLS, COLLECTIVES, ROUNDS, WARM = 40, 4_000, 11, 1
TARGET_US = 10.0

Work = Callable[[], object]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group of one rank, with torch's recorder of the size that `init` asks for."""
    torch.set_num_threads(1)
    monkeypatch.setenv(SIZE_VARIABLES[0], os.environ.get(SIZE_VARIABLES[0], "512"))
    with group_of_one():
        yield


def took(work: Work, *, is_recorded: bool, steps: int) -> tuple[float, float]:
    """Seconds of this thread for so many steps, and of the process until all of it is sealed."""
    process = time.process_time()
    with Run(NowhereExporter()) as run:
        recording = run._recording  # pyright: ignore[reportPrivateUsage]  # internal to this distribution
        spans = CollectionSpans(recording)
        if is_recorded:
            Collectives(recording).begin()
            spans.begin()
        thread = time.thread_time()
        for index in range(steps):
            with run.step(index):
                work()
        spent = time.thread_time() - thread
        spans.end()
    return spent, time.process_time() - process


def added_us(work: Work, *, calls: int) -> tuple[float, float]:
    """What a collective takes longer, of this thread and of all: lower quartiles of rounds in turns.

    Neighbours on the machine only ever add, so what is low is nearest to what the work itself takes.

    Args:
        work: A step.
        calls: Collectives in it.
    """
    steps = COLLECTIVES // calls
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(ROUNDS + WARM):
        for kind in (True, False) if number % 2 else (False, True):
            spent = took(work, is_recorded=kind, steps=steps)
            if number >= WARM:
                found[kind].append(spent)
    threads, processes = (
        low([spent[which] for spent in found[True]]) - low([spent[which] for spent in found[False]]) for which in (0, 1)
    )
    scale = 1e6 / (steps * calls)
    return scale * threads, scale * processes


def low(seconds: list[float]) -> float:
    """The lower quartile."""
    return statistics.quantiles(seconds, n=4)[0]


def many(call: Work) -> Work:
    """A call, `CALLS` times."""

    def work() -> None:
        for _ in range(CALLS):
            call()

    return work


def backward(*, hook: Any = None) -> tuple[Work, int]:
    """A step under DDP, and how many collectives it has."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(12)))
    model: Any = DistributedDataParallel(layers, bucket_cap_mb=0.03)
    if hook is not None:
        model.register_comm_hook(None, hook)
    inputs = torch.ones(2, 64)

    def work() -> None:
        model(inputs).sum().backward()

    for _ in range(3):  # buckets are made anew after the first
        work()
    before = dist.group.WORLD._get_sequence_number_for_group()
    work()
    return work, dist.group.WORLD._get_sequence_number_for_group() - before


@pytest.mark.usefixtures("group")
def test_what_recording_adds_to_a_collective(report: Report) -> None:
    plain, tensor = dist.all_reduce, torch.ones(1000)
    works: dict[str, tuple[Work, int]] = {
        "a call that waits": (many(lambda: dist.all_reduce(tensor)), CALLS),
        "a call that does not": (many(lambda: dist.all_reduce(tensor, async_op=True).wait()), CALLS),
        "seen by torch's recorder alone": (many(lambda: plain(tensor)), CALLS),
        "a bucket of DDP": backward(),
        "a bucket with the user's hook": backward(hook=allreduce_hook),
    }
    for name, (work, calls) in works.items():
        thread_us, process_us = added_us(work, calls=calls)
        report.judge(f"recording a collective, {name}", thread_us, "us", sense="at most", target=TARGET_US)
        report.add("  of all threads", process_us, "us")
