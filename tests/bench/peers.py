"""What peers add to a step in which all tensors are captured, and what we add: `make bench-peers`.

One model of 26 million parameters for each, trained in turns with an equal one that nobody observes, every step
captured. wandb's histograms and TensorBoard's are of weights and gradients; the hooks read five torch reductions of
each gradient with `.item()`; ours is the whole table of weights, gradients, layer outputs and their gradients, whose
batches are sealed and stay in memory: the two libraries write theirs to disk.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from rankscope import Run
from rankscope.testing import MemoryExporter
from rankscope_proto.names import Role
from tests.bench.paired import Cost, Training, cost, prepare_kernel

PAIRS = 12
Step = Callable[[int], None]


@contextmanager
def ours(training: Training, folder: Path) -> Generator[Step]:
    """The whole table of all tensors."""
    with _watched(training, ()) as step:
        yield step


@contextmanager
def our_gradients(training: Training, folder: Path) -> Generator[Step]:
    """The whole table of gradients alone."""
    with _watched(training, (Role.GRAD,)) as step:
        yield step


@contextmanager
def _watched(training: Training, roles: tuple[Role, ...]) -> Generator[Step]:
    with Run(MemoryExporter()) as run:
        run.watch(training.model, optimizer=training.optimizer, level=2, every=1, budget=None, roles=roles)

        def step(number: int) -> None:
            with run.step(number):
                training.step()

        yield step


@contextmanager
def wandb_watch(training: Training, folder: Path) -> Generator[Step]:
    """`wandb.watch(log="all")`, offline."""
    import wandb  # pyright: ignore[reportMissingImports] installed by `make bench-peers` alone

    library: Any = wandb
    with library.init(mode="offline", dir=str(folder), settings=library.Settings(silent=True)) as run:
        run.watch(training.model, log="all", log_freq=1)

        def step(number: int) -> None:
            training.step()
            run.log({"step": number})

        yield step


@contextmanager
def tensorboard(training: Training, folder: Path) -> Generator[Step]:
    """A histogram of each weight and gradient."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(folder))

    def step(number: int) -> None:
        training.step()
        for name, parameter in training.model.named_parameters():
            writer.add_histogram(name, parameter, number)
            writer.add_histogram(f"{name}.grad", parameter.grad, number)

    yield step
    writer.close()


@contextmanager
def item_hooks(training: Training, folder: Path) -> Generator[Step]:
    """Hooks that read five reductions of each gradient at once."""
    del folder
    kept: list[tuple[float, ...]] = []

    def read(gradient: torch.Tensor) -> None:
        found = (
            cast("torch.Tensor", gradient.norm()),
            gradient.abs().max(),
            gradient.mean(),
            gradient.std(),
            gradient.isnan().sum(),
        )
        kept.append(tuple(float(each.item()) for each in found))

    for parameter in training.model.parameters():
        parameter.register_hook(read)
    yield lambda _: training.step()


OURS, GRADIENTS, WANDB, BOARD, HOOKS = (
    "rankscope",
    "rankscope, gradients",
    "wandb.watch",
    "TensorBoard",
    ".item() hooks",
)
KINDS = {OURS: ours, GRADIENTS: our_gradients, WANDB: wandb_watch, BOARD: tensorboard, HOOKS: item_hooks}
WANTED = {WANDB: (OURS, 25), BOARD: (OURS, 25), HOOKS: (GRADIENTS, 4)}
"""What each peer is compared with, and how many times less than it that must add."""


def measured(kind: str) -> Cost:
    """What one of them adds."""
    plain, observed = Training(), Training()
    with tempfile.TemporaryDirectory() as folder, KINDS[kind](observed, Path(folder)) as step:
        return cost(plain, step, pairs=PAIRS, every=1)


def main() -> int:
    """Print the table, write build/bench-peers.json; 1 where a ratio is missed."""
    prepare_kernel()
    costs = {kind: measured(kind) for kind in KINDS}
    ratios = {kind: costs[kind].full_ms / costs[own].full_ms for kind, (own, _) in WANTED.items()}
    for kind, found in costs.items():
        told = f"{ratios[kind]:6.1f} times {WANTED[kind][0]}, at least {WANTED[kind][1]}" if kind in WANTED else ""
        print(f"{kind:22} + {found.full_ms:7.1f} ms on a step of {found.plain_ms:5.0f} ms  {told}")
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-peers.json").write_text(json.dumps({kind: found._asdict() for kind, found in costs.items()}))
    return int(any(ratios[kind] < least for kind, (_, least) in WANTED.items()))


if __name__ == "__main__":
    sys.exit(main())
