"""Small trainings that fall ill in one way, or look as if they did, recorded as `watch` records them.

What a rule says of them is what it says of a user's training: the rows come from real autograd and a real optimizer.
"""

import dataclasses
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankscope._clock import SystemClock
from rankscope._identity import alone
from rankscope._ids import RandomIds
from rankscope._run import Run
from rankscope.testing import MemoryExporter
from rankscope_proto.v1 import batch_pb2 as pb

WIDTH, BATCH, LAYERS = 8, 16, 6
STEPS, ILL = 40, 24
"""What goes wrong in a step goes wrong in step `ILL`, or from it on."""

CLIP = 5.0
"""Greatest norm of a step's gradients, as optimizers are most often given them; rules see them as they were."""

SICK = 2
"""The block in which it does, where it is one block's."""

Batches = Iterable[tuple[Tensor, Tensor]]
Change = Callable[["Net", torch.optim.Optimizer, int], None]


class Block(nn.Module):
    """A linear layer and what makes it non-linear, beside what passes by if anything does."""

    def __init__(self, act: nn.Module, *, passes: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH) if passes else nn.Identity()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.act, self.passes = act, passes

    def forward(self, x: Tensor) -> Tensor:
        """float[batch, width] → the same."""
        y = self.act(self.linear(self.norm(x)))
        return x + y if self.passes else y


class Sine(nn.Module):
    """Bounded, and steep wherever its input is large: gradients grow on their way back."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return torch.sin(x)


class Net(nn.Module):
    """A stack of blocks and a head."""

    def __init__(self, act: Callable[[], nn.Module] = nn.ReLU, *, passes: bool = True, gain: float = 1.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(act(), passes=passes) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1)
        with torch.no_grad():
            for block in self.blocks:
                block.get_parameter("linear.weight").mul_(gain)

    def forward(self, x: Tensor) -> Tensor:
        """float[batch, width] → float[batch, 1]."""
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def learnable(steps: int, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs that are others in every step, and a smooth function of them with noise."""
    chance = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        inputs = torch.randn(BATCH, WIDTH, generator=chance)
        noise = 0.1 * torch.randn(BATCH, 1, generator=chance)
        yield inputs, inputs[:, :4].sin().sum(dim=1, keepdim=True) + noise


def nothing(_net: Net, _optimizer: torch.optim.Optimizer, _step: int, /) -> None:
    """Nothing goes wrong."""


def dies(net: Net, _optimizer: torch.optim.Optimizer, step: int) -> None:
    """The units of a block never fire again."""
    if step == ILL:
        nn.init.constant_(net.blocks[SICK].get_parameter("linear.bias"), -100.0)


def leaps(_net: Net, optimizer: torch.optim.Optimizer, step: int) -> None:
    """The learning rate of one step is far too large."""
    optimizer.param_groups[0]["lr"] = 20.0 if step == ILL else 0.02


def anneals(_net: Net, optimizer: torch.optim.Optimizer, step: int) -> None:
    """The learning rate rises for ten steps and falls to a thousandth."""
    optimizer.param_groups[0]["lr"] = 0.05 * min(1.0, (step + 1) / 10) * 0.89 ** max(0, step - 10)


@dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        net: Makes the network.
        batches: Makes so many batches, of a seed.
        change: What becomes of it before a step.
        level: Of the watch.
        include: What it looks at; nothing: at everything.
        rate: Learning rate.
        steps: How many.
    """

    net: Callable[[], Net] = Net
    batches: Callable[..., Batches] = learnable
    change: Change = nothing
    level: int = 1
    include: tuple[str, ...] = ()
    rate: float = 0.02
    steps: int = STEPS


def spiking(steps: int, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One batch has labels that are six times too large."""
    for step, (inputs, targets) in enumerate(learnable(steps, seed=seed)):
        yield inputs, targets * (6.0 if step == ILL else 1.0)


def huge_on(rank: int) -> Callable[..., Batches]:
    """One batch of one rank has inputs that are a thousand times too large."""

    def made(steps: int, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        for step, (inputs, targets) in enumerate(learnable(steps, seed=seed)):
            yield inputs * (1000.0 if step == ILL and seed == rank else 1.0), targets

    return made


def exact(steps: int, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same batch in every step, which the head alone can fit exactly."""
    inputs = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(seed))
    return ((inputs, inputs[:, :1]) for _ in range(steps))


FEW = ("blocks.[1235]*", "head*")
"""What the whole table is taken of: the sick block, those beside it, and the last ones."""

TRAININGS: Mapping[str, Training] = {
    "healthy": Training(steps=100),
    "annealed": Training(change=anneals),
    "vanishing": Training(lambda: Net(nn.Sigmoid, passes=False)),
    "exploding_by_layer": Training(lambda: Net(Sine, passes=False, gain=12.0)),
    "exploding": Training(change=leaps),
    "dead": Training(change=dies, level=2, include=FEW),
    "dead at level 1": Training(change=dies),
    "dead with no way past": Training(lambda: Net(passes=False), change=dies, level=2, include=FEW),
    "converged": Training(batches=exact, rate=0.05, steps=160, level=2, include=FEW),
    "loss_spike": Training(batches=spiking),
}


@contextmanager
def _one_thread() -> Generator[None]:
    """Threads for such small tensors only wait for each other: on a busy machine 40 steps took 17 s instead of 0.2."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@_one_thread()
def recorded(
    training: Training, run_id: str, *, rank: int = 0, wrapped: Callable[[Net], nn.Module] = lambda net: net
) -> list[pb.Batch]:
    """What a run recorded of a training."""
    torch.manual_seed(1)
    exporter = MemoryExporter()
    identity = dataclasses.replace(alone(SystemClock(), RandomIds()), run_id=run_id, rank=rank, launch_id=b"T" * 16)
    net = training.net()
    model, criterion = wrapped(net), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=training.rate)
    with Run(exporter, identity=identity) as run:
        level, include = training.level, training.include
        run.watch(model, optimizer=optimizer, loss=criterion, level=level, include=include, every=1, budget=None)
        for step, (inputs, targets) in enumerate(training.batches(training.steps, seed=rank)):
            training.change(net, optimizer, step)
            with run.step(step):
                optimizer.zero_grad()
                loss = criterion(model(inputs), targets)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), CLIP)
                optimizer.step()
            if math.isfinite(value := loss.item()):
                run.log_metric("loss", value, step=step)
    return [pb.Batch.FromString(sealed.payload) for sealed in exporter.batches]


def on_ranks(*, run_id: str, bad_rank: int) -> list[bytes]:
    """What each rank recorded of a data-parallel training in which one rank has a bad batch."""
    training = Training(batches=huge_on(bad_rank))
    batches = recorded(training, run_id, rank=dist.get_rank(), wrapped=DistributedDataParallel)
    return [batch.SerializeToString() for batch in batches]
