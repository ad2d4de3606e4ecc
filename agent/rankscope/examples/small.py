"""What the small trainings across ranks have in common: a network, how a rank joins the others, how it asks.

`torchrun --nproc-per-node 4 -m rankscope.examples.slow_input` and its siblings need a server that runs: `rankscope up`.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

import rankscope

WIDTH, BATCH = 32, 16

Batch = tuple[Tensor, Tensor]


def network() -> nn.Module:
    """Three linear layers."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


class Batches(Dataset[Batch]):
    """A batch for each step: float[BATCH, WIDTH], and float[BATCH, 1] that can be learnt from it.

    Args:
        steps: How many there are.
        rank: Whose they are.
    """

    def __init__(self, steps: int, rank: int) -> None:
        self.steps, self.rank = steps, rank

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Batch:
        """The batch of a step."""
        inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step * 1_000 + self.rank))
        return inputs, inputs[:, :4].sin().sum(dim=1, keepdim=True)


@contextmanager
def joined(config: Mapping[str, object], *, patience_s: float = 300.0) -> Generator[rankscope.Run]:
    """A run in which this rank has joined the others; left, everything it recorded is stored.

    Args:
        config: What the run is shown with.
        patience_s: How long a rank waits in a collective before torch gives up.
    """
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=patience_s))
    try:
        with rankscope.init(config=config) as run:
            yield run
            run.finish(wait="durable", timeout=60)
    finally:
        dist.destroy_process_group()


def tell(injected: Mapping[str, object]) -> None:
    """Says what was put in, once."""
    if dist.get_rank() == 0:
        print(json.dumps({"injected": injected}), flush=True)


def ask(*command: str) -> int:
    """Runs a command of rankscope, shows it and what it answers; its exit status."""
    print(f"$ rankscope {shlex.join(command)}", flush=True)
    return subprocess.run([sys.executable, "-m", "rankscope", *command], check=False).returncode
