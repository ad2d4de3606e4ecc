"""Train with one rank that leaves out a collective, and let one command say who does not come while the others wait.

    torchrun --nproc-per-node 4 -m rankscope.examples.skipped_collective

The ranks sum up a figure at the end of each step; one of them leaves that out once, because it writes a report, and the
write does not come back. The others wait in an all-reduce: by itself torch says so after its own patience (30 minutes
as a rule, half a minute here) and not of whom. Needs a server that runs: `rankscope up`.
"""

import argparse
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rankscope
from rankscope.examples.small import Batches, ask, joined, network, tell

PATIENCE_S = 30.0
"""How long torch waits in a collective."""


def main() -> None:
    """Train until it hangs, ask."""
    options = arguments()
    with joined({"steps": options.steps}, patience_s=PATIENCE_S) as run:
        rank = dist.get_rank()
        absent = options.rank % dist.get_world_size()
        tell({"rank": absent, "step": options.step, "op": "all_reduce"})
        try:
            train(run, Batches(options.steps, rank), step_left_out=options.step, is_absent=rank == absent)
        except RuntimeError as error:
            print(f"rank {rank}, {PATIENCE_S:.0f} s later: {str(error).splitlines()[0]}", flush=True)


def train(run: rankscope.Run, batches: Batches, *, step_left_out: int, is_absent: bool) -> None:
    """Train on every batch once, and sum up the losses of all ranks in each step but one."""
    model = DistributedDataParallel(network())
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.05), nn.MSELoss()
    run.watch(model, optimizer=optimizer, loss=criterion)
    for step in range(len(batches)):
        inputs, targets = batches[step]
        with run.step(step):
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            if step == step_left_out and is_absent:
                write_report()
            elif step == step_left_out and dist.get_rank() == 0:
                # Beside the training, since this rank waits now, with the others.
                threading.Thread(target=ask, args=("hang", run.id, "--follow")).start()
            dist.all_reduce(loss.detach())


def write_report() -> None:
    """A write to a file server that is gone; it ends when everybody has given up."""
    threading.Event().wait(PATIENCE_S + 10)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=30, help="optimizer steps, where nothing hangs (default: 30)")
    parser.add_argument("--rank", type=int, default=1, help="who leaves the collective out (default: 1)")
    parser.add_argument("--step", type=int, default=12, help="in which step (default: 12)")
    options = parser.parse_args()
    if not 0 <= options.step < options.steps:
        parser.error(f"--step {options.step} is none of the {options.steps} steps")
    return options


if __name__ == "__main__":
    main()
