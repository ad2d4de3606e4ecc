"""What peers add to a step in which all tensors are captured, and what we add: `make bench-peers`.

One model of 26 million parameters for each, trained in turns with an equal one that nobody observes, every step
captured. wandb's histograms and TensorBoard's are of weights and gradients; the hooks read five torch reductions of
each gradient with `.item()`. Each is compared with us on the tensors that it looks at, of which we take the whole
table, histogram and fingerprint included. What we add with everything that the level has (layer outputs, the gradients
that arrive at them, updates) is told beside it. Our batches are sealed and stay in memory: the libraries write to disk.
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

PAIRS, PAIRS_OF_OURS = 12, 40
"""Steps of each. Ours add a twentieth of a step, which a dozen medians would not tell from noise."""

Step = Callable[[int], None]


@contextmanager
def everything_of_ours(training: Training, folder: Path) -> Generator[Step]:
    """The whole table of all that the level has."""
    with _watched(training, ()) as step:
        yield step


@contextmanager
def ours(training: Training, folder: Path) -> Generator[Step]:
    """The whole table of the tensors that the peers look at."""
    with _watched(training, (Role.WEIGHT, Role.GRAD)) as step:
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


EVERYTHING, OURS, GRADIENTS, WANDB, BOARD, HOOKS = (
    "rankscope, everything",
    "rankscope, weights and gradients",
    "rankscope, gradients",
    "wandb.watch",
    "TensorBoard",
    ".item() hooks",
)
KINDS = {
    EVERYTHING: everything_of_ours,
    OURS: ours,
    GRADIENTS: our_gradients,
    WANDB: wandb_watch,
    BOARD: tensorboard,
    HOOKS: item_hooks,
}
WANTED = {WANDB: (OURS, 25), BOARD: (OURS, 25), HOOKS: (GRADIENTS, 4)}
"""What each peer is compared with, which looks at the same tensors, and how many times less than it that must add."""


def measured(kind: str) -> Cost:
    """What one of them adds."""
    plain, observed = Training(), Training()
    pairs = PAIRS_OF_OURS if kind in (EVERYTHING, OURS, GRADIENTS) else PAIRS
    with tempfile.TemporaryDirectory() as folder, KINDS[kind](observed, Path(folder)) as step:
        return cost(plain, step, pairs=pairs, every=1)


def told(kind: str, costs: dict[str, Cost]) -> str:
    """How a peer compares, as words; of ours nothing."""
    if kind not in WANTED:
        return ""
    own, least = WANTED[kind]
    times, all_times = (costs[kind].full_ms / costs[each].full_ms for each in (own, EVERYTHING))
    return f"{times:6.1f} times {own}, at least {least}; {all_times:.1f} times everything"


def main() -> int:
    """Print the table, write build/bench-peers.json; 1 where a ratio is missed."""
    prepare_kernel()
    costs = {kind: measured(kind) for kind in KINDS}
    ratios = {kind: costs[kind].full_ms / costs[own].full_ms for kind, (own, _) in WANTED.items()}
    for kind, found in costs.items():
        print(
            f"{kind:32} + {found.full_ms:7.1f} ms on a step of {found.plain_ms:5.0f} ms  {told(kind, costs)}".rstrip()
        )
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-peers.json").write_text(json.dumps({kind: found._asdict() for kind, found in costs.items()}))
    return int(any(ratios[kind] < least for kind, (_, least) in WANTED.items()))


if __name__ == "__main__":
    sys.exit(main())
