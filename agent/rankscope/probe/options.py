"""What can be asked of a watch, without importing torch: `Run.watch` names these types too.

Every option has one default, written here and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypedDict

from rankscope.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

LEVELS = (0, 1)
"""Probe levels that a watch knows; `probe.md` says what each captures."""


class WatchOptions(TypedDict, total=False):
    """Keyword arguments of `watch`; all may be left out.

    Attributes:
        optimizer: Its `step` becomes the optimizer phase.
        loader: The iterable of batches; each fetch becomes an input phase. Wrapped in place.
        loss: The criterion; its output is the loss of the step.
        level: 0: phases and the loss's finiteness. 1: also the finiteness of layer outputs in every
            step, and weights and gradients in every `every`-th.
        every: Steps whose number is a multiple of it are captured in full; at least 1.
        include: Globs on tensor and module paths; only what matches is captured. Empty: everything.
        exclude: Globs; what matches is left out, also where `include` matches.
    """

    optimizer: "Optimizer | None"
    loader: Any
    loss: "nn.Module | None"
    level: int | None
    every: int | None
    include: Sequence[str]
    exclude: Sequence[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a watch captures, and when.

    Attributes:
        level: Probe level, one of `LEVELS`.
        every: Stride of fully captured steps, at least 1.
        include: Globs a path must match one of; empty: any path.
        exclude: Globs a path must match none of.
    """

    level: int = 1
    every: int = 10
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ConfigError(f"level {self.level} is not a probe level of watch; use 0 or 1")
        if self.every < 1:
            raise ConfigError(f"every={self.every} captures no step; use 1 for every step, 10 for every tenth")

    def wants(self, path: str) -> bool:
        """Whether the filters let a path through."""
        included = not self.include or any(fnmatchcase(path, glob) for glob in self.include)
        return included and not any(fnmatchcase(path, glob) for glob in self.exclude)

    def captures(self, step: int) -> bool:
        """Whether a step is captured in full by its number alone."""
        return self.level >= 1 and step % self.every == 0


def plan_of(options: WatchOptions) -> Plan:
    """The plan that the options ask for.

    Raises:
        ConfigError: If `level` or `every` is out of range.
    """
    defaults = Plan()
    level, every = options.get("level"), options.get("every")
    return Plan(
        level=defaults.level if level is None else level,
        every=defaults.every if every is None else every,
        include=tuple(options.get("include", ())),
        exclude=tuple(options.get("exclude", ())),
    )
