"""The training of one rank: DDP over gloo, watched, two collectives of its own in each step, and the faults put in.

It uses rankscope as anyone would. Faults are done, not simulated: the input waits, the process is killed, the
all-reduce is left out.
"""

import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import rankscope
from tests.ranks.faults import BLOCKS, Kind, Plan

WIDTH, BATCH = 16, 8
BEYOND_FLOAT32 = 2.0**130
PATIENCE = timedelta(minutes=10)
"""How long a rank waits in a collective: longer than any test."""


class Items(Dataset[Tensor]):
    """One batch for each step; late where the plan says so."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self._plan, self._rank = plan, rank

    def __len__(self) -> int:
        return self._plan.steps

    def __getitem__(self, step: int) -> Tensor:
        """float[BATCH, WIDTH]."""
        slow = self._plan.due(Kind.SLOW_INPUT, self._rank, step)
        if slow:
            time.sleep(slow.ms / 1e3)
        return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step * 7 + self._rank))


class Block(nn.Module):
    """A linear layer whose result can be carried out of range."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.gain = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """float[batch, width] → the same."""
        return torch.tanh(self.linear(x)) * self.gain


class Net(nn.Module):
    """A stack of blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """float[batch, width] → float[batch, 1]."""
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Training:
    """One rank's training.

    Args:
        plan: What happens in it.
        run: The run it records.
    """

    def __init__(self, plan: Plan, run: rankscope.Run) -> None:
        self._plan, self._run, self._rank = plan, run, dist.get_rank()
        self.net = Net()
        self.model = DistributedDataParallel(self.net)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self._criterion = nn.MSELoss()
        self._loader = DataLoader(Items(plan, self._rank), batch_size=None)

    def run(self) -> None:
        """Every step of the plan."""
        self._run.watch(
            self.model, optimizer=self._optimizer, loader=self._loader, loss=self._criterion, level=1, every=10
        )
        for step, inputs in enumerate(self._loader):
            while self._plan.is_gated(step) and not Path(self._plan.gate).exists():
                time.sleep(0.05)
            with self._run.step(step):
                self._step(step, inputs)

    def _step(self, step: int, inputs: Tensor) -> None:
        overflow = self._plan.due(Kind.OVERFLOW, self._rank, step)
        for number, block in enumerate(self.net.blocks):
            assert isinstance(block, Block)
            block.gain = BEYOND_FLOAT32 if overflow and overflow.block == number else 1.0
        self._optimizer.zero_grad()
        self._criterion(self.model(inputs), inputs[:, :1]).backward()
        if not overflow_anywhere(self._plan, step):
            self._optimizer.step()
        self._end(step)
        self._agree(step)

    def _end(self, step: int) -> None:
        """The faults that end or stop this process."""
        if self._plan.due(Kind.RAISE, self._rank, step):
            raise ValueError(f"the batch of step {step} has no labels")
        if self._plan.due(Kind.STOP, self._rank, step):
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._plan.due(Kind.KILL, self._rank, step):
            os.kill(os.getpid(), signal.SIGKILL)

    def _agree(self, step: int) -> None:
        """The two collectives of the loop itself: what was seen is summed up, the next rate is told by rank 0."""
        counts = self._plan.counts
        if self._plan.due(Kind.SKIP, self._rank, step):
            write_report()
        if self._plan.due(Kind.REORDER, self._rank, step):
            dist.broadcast(torch.zeros(counts), 0)
        dist.all_reduce(torch.ones(counts - bool(self._plan.due(Kind.SIZE, self._rank, step))))
        if not self._plan.due(Kind.REORDER, self._rank, step):
            dist.broadcast(torch.zeros(counts), 0)


def overflow_anywhere(plan: Plan, step: int) -> bool:
    """Whether the gradients of this step are broken: no rank may apply them."""
    return any(fault.kind is Kind.OVERFLOW and fault.is_due(fault.rank, step) for fault in plan.faults)


def write_report() -> None:
    """Never comes back, as a write to a file server that is gone."""
    threading.Event().wait()


def train(plan: Plan) -> None:
    """The training of the rank that the environment names, from the process group to the last word."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", timeout=PATIENCE)
    with rankscope.init() as run:
        Training(plan, run).run()
    dist.destroy_process_group()
