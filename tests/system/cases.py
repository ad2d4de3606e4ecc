"""What the ranks of the pool, or programs of their own, do in these tests."""

import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rankscope


def trained(*, steps: int) -> str:
    """A small real training under DDP, watched; gives the run's id as this rank knows it."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with rankscope.init(name="small") as run:
        run.watch(model, optimizer=optimizer, level=1, every=1)
        for index in range(steps):
            with run.step(index):
                loss = model(torch.ones(2, 4) * (dist.get_rank() + 1)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.log_metric("loss", loss.item())
        return run.id


def one_span_and_one_statistic() -> None:
    """The least a training can record: one span, and one watched tensor."""
    model = nn.Linear(3, 2)
    with rankscope.init() as run:
        run.watch(model, level=1, every=1)
        with run.step(0), run.span("look", "tool", attributes={"where": "here", "times": 3}):
            model(torch.ones(1, 3)).sum().backward()


def holding_the_rank(stop_file: str) -> None:
    """Joins the run and stays until the file is there."""
    with rankscope.init():
        sys.stdout.write("joined\n")
        sys.stdout.flush()
        _wait_for(stop_file)


def _wait_for(file: str) -> None:
    pause = threading.Event()
    while not Path(file).exists():
        pause.wait(0.05)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    sys.stdout.flush()
