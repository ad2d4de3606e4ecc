"""Train with one rank whose input is slow every fifth step, and let one command say who holds the others up, and why.

    torchrun --nproc-per-node 4 -m rankscope.examples.slow_input

All ranks are slow together then, since each waits for the gradients of the others: the one that waits least is the one
to look at. Needs a server that runs: `rankscope up`.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import rankscope
from rankscope.examples.small import Batch, Batches, ask, joined, network, tell

EVERY, SINCE, DELAY_S = 5, 20, 0.06
FEWEST = 40


class SlowBatches(Batches):
    """Batches that come late in some steps, as where a file server drops its cache now and then."""

    def __getitem__(self, step: int) -> Batch:
        """The batch of a step."""
        if step >= SINCE and step % EVERY == 0:
            time.sleep(DELAY_S)
        return super().__getitem__(step)


def main() -> None:
    """Train, ask."""
    options = arguments()
    with joined({"steps": options.steps}) as run:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        slow = options.rank % ranks
        batches = (SlowBatches if rank == slow else Batches)(options.steps, rank)
        train(run, batches)
        tell({"rank": slow, "every": EVERY, "since_step": SINCE, "cause": "input", "delay_s": DELAY_S})
    if rank == 0:
        ask("stragglers", run.id)


def train(run: rankscope.Run, batches: Batches) -> None:
    """Train on every batch once."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader, criterion = DataLoader(batches, batch_size=None), nn.MSELoss()
    run.watch(model, optimizer=optimizer, loader=loader, loss=criterion)
    for step, (inputs, targets) in enumerate(loader):
        with run.step(step):
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=100, help=f"optimizer steps, at least {FEWEST} (default: 100)")
    parser.add_argument("--rank", type=int, default=2, help="whose input is slow (default: 2)")
    options = parser.parse_args()
    if options.steps < FEWEST:
        parser.error(f"--steps {options.steps} are too few to see what comes every {EVERY} steps: at least {FEWEST}")
    return options


if __name__ == "__main__":
    main()
