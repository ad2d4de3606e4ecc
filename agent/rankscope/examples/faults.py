"""Two faults that really happen in trainings, put into one on purpose.

A slow input pipeline: from some step on, every read of one rank's dataset waits, as on an overloaded
file server. An overflow: in one step, one rank's hidden values in one layer are multiplied beyond the
range of float32. Neither writes a NaN or a duration anywhere; what is recorded is what happened.
"""

import random
import time
from dataclasses import asdict, dataclass
from typing import TypeVar

from torch import Tensor, nn
from torch.utils.data import Dataset

T_co = TypeVar("T_co", covariant=True)

EARLIEST = 15
"""Steps before the first fault: what is normal has to be seen first."""

SLOW_BATCH_S = 0.16
"""What one batch takes longer on the slow rank."""

BEYOND_FLOAT32 = 2.0**100
"""Applied twice, this carries any ordinary activation beyond 2**128, where float32 ends."""


@dataclass(frozen=True)
class Straggler:
    """One rank's input is slow from a step on."""

    rank: int
    since_step: int
    phase: str = "input"


@dataclass(frozen=True)
class Overflow:
    """One rank's layer overflows in one step."""

    rank: int
    step: int
    layer: str


@dataclass(frozen=True)
class Faults:
    """What will go wrong in a training; None where nothing will."""

    straggler: Straggler | None = None
    nonfinite: Overflow | None = None

    def as_json(self) -> dict[str, object]:
        """The faults as a JSON object, in the form in which findings are told."""
        return asdict(self)


def draw_faults(seed: int, *, ranks: int, steps: int, layers: int) -> Faults:
    """Faults that the seed decides: which rank, which step, which layer.

    Args:
        seed: Same seed, same faults.
        ranks: World size.
        steps: Length of the training, at least `2 * EARLIEST + 10`.
        layers: Number of blocks of the model.

    Raises:
        ValueError: If the training is too short for two faults that can be told apart.
    """
    if steps < 2 * EARLIEST + 10:
        raise ValueError(f"{steps} steps are too few for the faults to be told apart; train at least 40, or without")
    draw = random.Random(seed)
    since_step = draw.randrange(EARLIEST, steps // 2 - 2)
    step = draw.randrange(steps // 2 + 2, steps - 3)
    return Faults(
        Straggler(draw.randrange(ranks), since_step),
        Overflow(draw.randrange(ranks), step, f"blocks.{draw.randrange(layers)}"),
    )


class SlowReads(Dataset[T_co]):
    """A dataset whose reads become slow.

    Args:
        dataset: Where items come from.
        batch_size: Items per step.
        since_step: First step whose reads are slow, 0-based.
    """

    def __init__(self, dataset: Dataset[T_co], *, batch_size: int, since_step: int) -> None:
        self._dataset = dataset
        self._batch_size = batch_size
        self._since_step = since_step
        self._reads = 0

    def __len__(self) -> int:
        return len(self._dataset)  # pyright: ignore[reportArgumentType] torch leaves `__len__` to each dataset

    def __getitem__(self, index: int) -> T_co:
        """The item, late once reads are slow."""
        step = self._reads // self._batch_size
        self._reads += 1
        if step >= self._since_step:
            time.sleep(SLOW_BATCH_S / self._batch_size)
        return self._dataset[index]


def overflow_in(layer: nn.Module, step: int) -> None:
    """Make a layer's feed-forward values overflow in one step, counted by its forward passes from 0."""
    passes = 0

    def scale(_module: nn.Module, _inputs: tuple[Tensor, ...], hidden: Tensor, /) -> Tensor | None:
        nonlocal passes
        is_due, passes = passes == step, passes + 1
        return hidden * BEYOND_FLOAT32 * BEYOND_FLOAT32 if is_due else None

    layer.get_submodule("mlp").register_forward_hook(scale)
