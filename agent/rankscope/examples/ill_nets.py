"""Train a deep network that falls ill in one way, and let one query each say where.

    python -m rankscope.examples.ill_nets dead --seed 3
    torchrun --nproc-per-node 2 -m rankscope.examples.ill_nets overflow

The network is a stack of equal blocks over made-up data. `dead`: from one step on a block's units never fire.
`vanishing`: saturating units, so that gradients fade on their way to the first blocks. `exploding`: from one step on
the learning rate is a thousand times too large. `overflow`: in one step one rank's block leaves the range of float32.
`none`: nothing is wrong. Needs a server that runs: `rankscope up`.
"""

import argparse
import json
import os
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import rankscope

WIDTH, BATCH, LAYERS = 32, 64, 8
RATE = 0.05
EARLIEST = 20
"""Steps before a fault: what is normal has to be seen first."""

FEWEST = 30
"""Steps that a training has at least: the fault comes after the earliest, and shows for a few."""

BEYOND_FLOAT32 = 2.0**100
"""Applied twice, this carries any ordinary value beyond 2**128, where float32 ends."""

QUERIES = {
    "dead": 'tensor.role == "activation" and tensor.zero_frac == 1 | first',
    "overflow": 'tensor.role == "activation" and tensor.nonfinite_count > 0 | first',
    "exploding": 'tensor.role == "weight" and tensor.name =~ ".*weight" and tensor.l2 > 3 * prev(tensor.l2) | first',
    "vanishing": (
        'tensor.role == "grad" and tensor.name =~ ".*linear.weight"'
        " | across layer: slope(log2(tensor.l2)) by step | where slope > 1.8 | first"
    ),
}
"""What finds each fault; a fading gradient is one of all ranks and layers, so its answer is a step and a slope."""

SHOWN = ("rank", "step", "module", "name", "role", "slope")
"""What is told of an answer."""


@dataclass(frozen=True)
class Fault:
    """What is wrong, and where; None where that has no meaning.

    Attributes:
        kind: A key of `QUERIES`, or none.
        step: Optimizer step at which it begins.
        rank: The only rank that has it.
        layer: The block that has it.
    """

    kind: str
    step: int | None = None
    rank: int | None = None
    layer: int | None = None


class Block(nn.Module):
    """A linear layer and what makes it non-linear."""

    def __init__(self, width: int, *, saturates: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.act = nn.Sigmoid() if saturates else nn.ReLU()
        self.gain = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """float[batch, width] → the same."""
        return self.act(self.linear(x)) * self.gain * self.gain


class Net(nn.Module):
    """A stack of blocks and a head."""

    def __init__(self, *, saturates: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(WIDTH, saturates=saturates) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """float[batch, width] → float[batch, 1]."""
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main() -> None:
    """Read the arguments, train, ask."""
    options = arguments()
    torch.manual_seed(options.seed)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    fault = drawn(options.kind, seed=options.seed, steps=options.steps)
    rank = dist.get_rank() if dist.is_initialized() else 0
    with rankscope.init(config={**asdict(fault), "steps": options.steps}) as run:
        train(run, fault, rank=rank, steps=options.steps)
        run.finish(wait="durable", timeout=60)
    if rank == 0:
        print(json.dumps({"injected": asdict(fault)}))
        print(json.dumps({"found": found(run.id, fault.kind)}))
    if dist.is_initialized():
        dist.destroy_process_group()


def drawn(kind: str, *, seed: int, steps: int) -> Fault:
    """A fault of a kind; the seed decides where it is."""
    draw = random.Random(seed)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    step, rank, layer = draw.randrange(EARLIEST, steps - 5), draw.randrange(ranks), draw.randrange(1, LAYERS - 1)
    if kind == "overflow":
        return Fault(kind, step, rank, layer)
    if kind == "dead":
        return Fault(kind, step, None, layer)
    return Fault(kind, step if kind == "exploding" else None)


def train(run: rankscope.Run, fault: Fault, *, rank: int, steps: int) -> None:
    """Train, with the fault put in when its step comes."""
    net = Net(saturates=fault.kind == "vanishing")
    model = DistributedDataParallel(net) if dist.is_initialized() else net
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    criterion = nn.MSELoss()
    run.watch(model, optimizer=optimizer, loss=criterion, level=2, every=1, include=["blocks.*", "head*"], budget=None)
    for index, (inputs, targets) in enumerate(batches(steps, seed=rank)):
        put_in(fault, net, optimizer=optimizer, rank=rank, step=index)
        with run.step(index):
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()


def put_in(fault: Fault, net: Net, *, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    """Make the fault happen in its step, and an overflow in no other."""
    block = cast("Block", net.blocks[fault.layer or 0])
    if fault.kind == "overflow" and fault.rank == rank:
        block.gain = BEYOND_FLOAT32 if step == fault.step else 1.0
    elif fault.kind == "dead" and step == fault.step:
        nn.init.constant_(block.linear.bias, -100.0)
    elif fault.kind == "exploding" and step == fault.step:
        optimizer.param_groups[0]["lr"] = 1000 * RATE


def batches(count: int, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs, and a smooth function of them that can be learnt."""
    chance = torch.Generator().manual_seed(seed)
    for _ in range(count):
        inputs = torch.randn(BATCH, WIDTH, generator=chance)
        yield inputs, inputs[:, :4].sin().sum(dim=1, keepdim=True)


def found(run_id: str, kind: str) -> list[dict[str, object]]:
    """What each query says of the run: of its own fault alone, or of all where there is none."""
    client = rankscope.connect()
    asked = [kind] if kind in QUERIES else list(QUERIES)
    rows = [row for name in asked for row in client.query(QUERIES[name], run=run_id)]
    return [{name: row[name] for name in SHOWN if name in row} for row in rows]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kind", choices=[*QUERIES, "none"], help="what goes wrong")
    parser.add_argument("--steps", type=int, default=60, help=f"optimizer steps, at least {FEWEST} (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="decides weights, data and where the fault is (default: 1)")
    options = parser.parse_args()
    if options.steps < FEWEST:
        parser.error(f"--steps {options.steps} are too few for a fault to show: at least {FEWEST}")
    return options


if __name__ == "__main__":
    main()
