"""What a sample of a node with eight ranks takes of the agent's CPU; GPUs, which a driver answers for, beside it."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.agent.neighbours import Neighbours
from rankscope.agent.sampler.figures import Counters, Figure
from rankscope.agent.sampler.node import Node
from rankscope.agent.sampler.processes import Processes
from rankscope.agent.sampler.visitor import MOST_FIGURES
from tests.agent.agent.spools import Trainer
from tests.bench.report import Report

pytestmark = pytest.mark.bench

RANKS, SAMPLES, SHARE = 8, 60, 0.1
EVERY_MS = 5_000


def test_a_sample_takes_little_of_a_cpu(tmp_path: Path, report: Report) -> None:
    Trainer(tmp_path, pid=os.getpid())
    looking = Neighbours(tmp_path)
    (found,) = looking.look()
    looking.close()
    ranks = [replace(found, head=replace(found.head, rank=rank)) for rank in range(RANKS)]
    counters = Counters()
    node, processes = Node(counters), Processes(counters)
    spent: list[float] = []
    figures: list[Figure] = []

    for sample in range(SAMPLES):
        begun = time.process_time()
        counters.begin(float(sample))
        figures = [*node.read(), *(figure for rank in ranks for figure in processes.read(rank))]
        spent.append((time.process_time() - begun) * 1_000)

    title = f"a sample of a node with {RANKS} ranks, {len(figures)} figures, of one CPU at one every 5 s"
    report.judge(title, min(spent) / EVERY_MS * 100, "%", sense="at most", target=SHARE)
    report.add("  CPU of a sample", min(spent), "ms")
    assert RANKS < len(figures) < MOST_FIGURES
