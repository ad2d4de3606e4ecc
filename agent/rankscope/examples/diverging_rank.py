"""Train with one rank that leaves out an update the others make, and let two queries say when and which.

    torchrun --nproc-per-node 4 -m rankscope.examples.diverging_rank

A rank that decides by its own gradients whether to update, not by those of all, does that. Nothing fails, and the loss
goes on falling: from then on the ranks train different networks and exchange gradients that do not belong together.
Data-parallel weights are equal to the last bit, so one comparison over ranks tells. Needs a server that runs:
`rankscope up`.
"""

import argparse
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import rankscope
from rankscope.examples.small import Batches, ask, joined, network, tell

WHEN = 'tensor.role == "weight" | across rank: agree(tensor.l2) by step, tensor.name | where agree == false | first'
WHO = 'tensor.role == "weight" and step == {step} and tensor.name == "{name}" | select rank, tensor.l2'


def main() -> None:
    """Train, ask."""
    options = arguments()
    with joined({"steps": options.steps}) as run:
        rank = dist.get_rank()
        odd = options.rank % dist.get_world_size()
        train(run, Batches(options.steps, rank), left_out=[options.step] if rank == odd else [])
        tell({"rank": odd, "step": options.step})
    if rank == 0:
        ask("query", WHEN, "--run", run.id)
        first = rankscope.connect().query(WHEN, run=run.id).rows
        for row in first:
            ask("query", WHO.format(step=row["step"], name=row["name"]), "--run", run.id)


def train(run: rankscope.Run, batches: Batches, *, left_out: Sequence[int]) -> None:
    """Train on every batch once, but for the updates that are left out."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader, criterion = DataLoader(batches, batch_size=None), nn.MSELoss()
    run.watch(model, optimizer=optimizer, loader=loader, loss=criterion, every=1, budget=None)
    for step, (inputs, targets) in enumerate(loader):
        with run.step(step):
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            if step not in left_out:
                optimizer.step()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps (default: 40)")
    parser.add_argument("--rank", type=int, default=3, help="who leaves out an update (default: 3)")
    parser.add_argument("--step", type=int, default=17, help="which one it leaves out (default: 17)")
    options = parser.parse_args()
    if not 0 <= options.step < options.steps - 1:
        parser.error(f"--step {options.step}: it shows in the step after it, and there are {options.steps}")
    return options


if __name__ == "__main__":
    main()
