"""What can be asked of a watch, without importing torch: `Run.watch` names these types too.

Every option has one default, written here and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypedDict, cast

from rankscope.probe.configuration import CaptureConfiguration
from rankscope_proto.names import Role

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

_LISTS = {"include", "exclude", "roles"}


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
        roles: What is captured; empty: all that the level has.
        budget: Most share of step time that capturing may cost; None: no limit.
    """

    optimizer: "Optimizer | None"
    loader: Any
    loss: "nn.Module | None"
    level: int | None
    every: int | None
    include: Sequence[str]
    exclude: Sequence[str]
    roles: Sequence[Role]
    budget: float | None


def configuration_of(options: WatchOptions) -> CaptureConfiguration:
    """The configuration that the options ask for.

    Raises:
        ConfigError: If an option is out of range.
    """
    known = {field.name for field in fields(CaptureConfiguration)}
    told = {name: value for name, value in options.items() if name in known and (value is not None or name == "budget")}
    lists = {name: tuple(cast("Sequence[object]", value)) for name, value in told.items() if name in _LISTS}
    return CaptureConfiguration(**cast("Any", {**told, **lists}))
