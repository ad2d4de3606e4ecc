"""Small trainings and what a run recorded of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from rankscope._run import Run
from rankscope.probe.attach import attach
from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.local import LocalProbe
from rankscope.probe.meters import Meter
from rankscope.probe.watch import Watch
from rankscope.testing import MemoryExporter
from rankscope_proto.names import TENSOR_FLAGS, Phase, Role

Row = dict[str, Any]
LOCAL, REDUCED = TENSOR_FLAGS["local"], TENSOR_FLAGS["reduced"]


class Block(nn.Module):
    """A repeated block whose output can be made to overflow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        self.gain = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(self.norm(x)) * self.gain * self.gain


class Model(nn.Module):
    """An embedding, three blocks, a norm and a head."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 16)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.embed(codes)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def overflow(self, block: int, *, on: bool) -> None:
        """Make a block's values leave the range of float32, by multiplication."""
        found = self.blocks[block]
        assert isinstance(found, Block)
        found.gain = 2.0**100 if on else 1.0


class Recorded:
    """A run that records into memory."""

    def __init__(self) -> None:
        self.exporter = MemoryExporter()
        self.run = Run(self.exporter)

    def rows(self, section: str, **wanted: object) -> list[Row]:
        """The rows of a section so far whose fields have the wanted values; ends the run."""
        self.run.finish()
        rows = self.exporter.rows(section)
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]

    def phases(self, step: int) -> list[str]:
        """Names of a step's phase spans, in the order they began."""
        spans = [row for row in self.rows("spans", step=step) if row["phase"]]
        return [str(row["name"]) for row in sorted(spans, key=start_of)]


def start_of(row: Row) -> int:
    """When a span began."""
    return row["start"]


def batches(count: int, *, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Batches of codes and targets."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 16, (count, 4, 5), generator=generator)
    return [(each, each.roll(1)) for each in codes]


def loader(count: int) -> DataLoader[tuple[Tensor, ...]]:
    """The same through a DataLoader, four items a batch."""
    codes = torch.cat([codes for codes, _ in batches(count)])
    return DataLoader(TensorDataset(codes, codes.roll(1)), batch_size=4)


class Criterion(nn.Module):
    """Cross entropy over all positions."""

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def train(
    run: Run,
    model: nn.Module,
    data: Sequence[tuple[Tensor, Tensor]],
    *,
    optimizer: torch.optim.Optimizer,
    criterion: nn.Module,
) -> Iterator[Tensor]:
    """Train on the data, one step each; yields the loss inside the step, after backward and the update."""
    for index, (codes, targets) in enumerate(data):
        with run.step(index):
            optimizer.zero_grad()
            loss = criterion(model(codes), targets)
            loss.backward()
            optimizer.step()
            yield loss.detach()


def trained(recorded: Recorded, model: nn.Module, *, steps: int = 1, **options: Any) -> LocalProbe:
    """Watch and train a model; returns the probe, still live."""
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.1), Criterion()
    probe = attach(recorded.run, model, optimizer=optimizer, loss=criterion, **options)
    for _ in train(recorded.run, model, batches(steps), optimizer=optimizer, criterion=criterion):
        continue
    return probe


def watching(
    recorded: Recorded,
    model: nn.Module,
    configuration: CaptureConfiguration,
    *,
    meter_for: Callable[[torch.device], Meter],
) -> Watch:
    """A watch whose numbers come from the given meters."""
    return Watch(cast("Any", recorded.run)._recording, model, configuration=configuration, meter_for=meter_for)


def linear(model: nn.Module, path: str) -> nn.Linear:
    """The linear layer at a path of the model."""
    found = model.get_submodule(path)
    assert isinstance(found, nn.Linear)
    return found


def norm_of(tensor: Tensor | None) -> float:
    """The norm of a tensor, computed the plain way in fp64."""
    assert tensor is not None
    return cast("Any", tensor.detach().to_dense().double().norm()).item()


def hook_count(*owners: object) -> int:
    """How many hooks modules, parameters and optimizers carry, by the attributes torch keeps them in."""
    return sum(
        len(cast("dict[int, object]", hooks))
        for owner in owners
        for name, hooks in vars(owner).items()
        if name.endswith("hooks") and isinstance(hooks, dict)
    ) + sum(len(cast("Any", owner)._post_accumulate_grad_hooks or ()) for owner in owners if isinstance(owner, Tensor))


def names(rows: Sequence[Row]) -> list[str]:
    """The tensors' names, in order."""
    return [str(row["name"]) for row in rows]


WEIGHT, GRAD, ACTIVATION = Role.WEIGHT.code, Role.GRAD.code, Role.ACTIVATION.code
FORWARD, BACKWARD = Phase.FORWARD.code, Phase.BACKWARD.code
EVERY_STEP = CaptureConfiguration(every=1)
LAYERS = ["embed", "blocks.0", "blocks.1", "blocks.2", "norm", "head"]
