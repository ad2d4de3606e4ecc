"""Watching adds at most a hundredth to the peak memory of a training.

The peak is the kernel's own for the memory of the program that trains (`VmHWM`). `ru_maxrss` is not: a process starts
with the peak of the one that started it, and that of a test run is greater than all that is compared here. What is
freed goes back to the system at once, or peaks would differ by 5 % from run to run; now it is 0.05 %. Both programs
watch, the one a model of no size, so that both have the same code and what it needs.
"""

import os
import subprocess
import sys

import pytest

PROGRAM = r"""
import re, sys
from pathlib import Path
import torch
from torch import nn
from rankscope.probe.attach import attach
from tests.agent.probe.trainings import Recorded

level, is_watched = int(sys.argv[1]), sys.argv[2] == "watched"
torch.set_num_threads(1)
model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(16)))
small = nn.Linear(2, 2)
optimizers = {each: torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, small)}
run = Recorded().run
watched = model if is_watched else small
attach(run, watched, optimizer=optimizers[watched], level=level, every=1, budget=None)
for index in range(3):
    with run.step(index):
        for each, width in ((small, 2), (model, 2048)):
            optimizers[each].zero_grad()
            each(torch.ones(64, width)).sum().backward()
            optimizers[each].step()
print(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def peak_kib(level: int, what: str) -> int:
    """Peak resident memory of a training of 67 million parameters."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(level), what],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    return int(done.stdout)


@pytest.mark.parametrize("level", [1, 2])
def test_the_peak_of_memory_grows_by_a_hundredth_at_most(level: int) -> None:
    plain, watched = (peak_kib(level, what) for what in ("plain", "watched"))

    assert watched <= 1.01 * plain
