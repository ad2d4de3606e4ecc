"""Watching adds at most a hundredth to the peak memory of a training."""

import subprocess
import sys

PROGRAM = """
import resource, sys
import torch
from torch import nn
from rankscope.probe.attach import attach
from tests.agent.probe.trainings import Recorded

level = int(sys.argv[1])
torch.set_num_threads(1)
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(16)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = Recorded().run
attach(run, model if level >= 0 else nn.Linear(1, 1), level=max(level, 0), every=1, budget=None)
for index in range(3):
    with run.step(index):
        optimizer.zero_grad()
        model(torch.ones(1024, 1024)).sum().backward()
        optimizer.step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_kib(level: int) -> int:
    """Peak resident memory of a training, the same program and imports whether it is watched or not."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(level)], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def test_the_peak_of_memory_grows_by_a_hundredth_at_most() -> None:
    plain, *watched = (peak_kib(level) for level in (-1, 1, 2))

    assert max(watched) <= 1.01 * plain
