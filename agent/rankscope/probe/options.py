"""What can be asked of a watch, without importing torch: `Run.watch` names these types too.

Every option has one default, written here and nowhere else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from rankscope._run_info import WatchDefaults
from rankscope.errors import ConfigError
from rankscope.probe.configuration import CaptureConfiguration
from rankscope_proto.names import Role

if TYPE_CHECKING:
    from os import PathLike

    from torch import nn
    from torch.amp.grad_scaler import GradScaler
    from torch.optim import Optimizer

_LISTS = {"include", "exclude", "roles"}
NO_DEFAULTS = WatchDefaults()


class WatchOptions(TypedDict, total=False):
    """Keyword arguments of `watch`; all may be left out.

    Attributes:
        optimizer: Its `step` becomes the optimizer phase, and from level 2 on says how far each weight moved;
            several in a sequence.
        scaler: The gradient scaler that training scales its losses with: gradients are divided by its scale, and
            steps that it leaves out are marked.
        loader: The iterable of batches; each fetch becomes an input phase. Wrapped in place.
        loss: The criterion; its output is the loss of the step.
        level: 0: phases and the loss's finiteness. 1: also the finiteness of layer outputs in every
            step, and norms of weights and gradients in every `every`-th. 2: in such a step the whole table of
            statistics, also of outputs and the gradients that arrive at them, and spans of modules. 3: also values
            of tensors, where something asks for them.
        every: Steps whose number is a multiple of it are captured in full; at least 1.
        include: Globs on tensor and module paths; only what matches is captured. Empty: everything.
        exclude: Globs; what matches is left out, also where `include` matches.
        roles: What is captured; empty: all that the level has.
        budget: Most share of step time that capturing may cost; None: no limit.
        whole_updates: Keep the whole difference that an optimizer makes instead of a sample's norm.
        configuration: All of the above at once, instead of it.
        capture_file: JSON file in which another process may write a configuration, beside it perhaps `from_step`.
            It is looked at when a step begins, once a second at most, and need not be there.
    """

    optimizer: "Optimizer | Sequence[Optimizer] | None"
    scaler: "GradScaler | None"
    loader: Any
    loss: "nn.Module | None"
    level: int | None
    every: int | None
    include: Sequence[str]
    exclude: Sequence[str]
    roles: Sequence[Role]
    budget: float | None
    whole_updates: bool
    configuration: CaptureConfiguration | None
    capture_file: "str | PathLike[str] | None"


def configuration_of(options: WatchOptions, defaults: WatchDefaults = NO_DEFAULTS) -> CaptureConfiguration:
    """The configuration that the options ask for, and the run's defaults where they do not say.

    Raises:
        ConfigError: If an option is out of range, or contradicts another.
    """
    _refuse_unknown(options)
    known = {field.name for field in fields(CaptureConfiguration)}
    told = {name: value for name, value in options.items() if name in known and (value is not None or name == "budget")}
    whole = options.get("configuration")
    if whole is not None:
        if not isinstance(whole, CaptureConfiguration):  # pyright: ignore[reportUnnecessaryIsInstance]  of a caller's
            raise ConfigError(f"configuration is a {type(whole).__name__}; pass a CaptureConfiguration")
        if told:
            raise ConfigError(f"configuration= says all there is to capture, and {', '.join(told)}= says it again")
        return whole
    usual = {name: value for name in known if (value := getattr(defaults, name, None)) not in (None, ())}
    merged = {**usual, **told}
    lists = {name: _as_tuple(name, value) for name, value in merged.items() if name in _LISTS}
    return CaptureConfiguration(**cast("Any", {**merged, **lists}))


def capture_file_of(options: WatchOptions, defaults: WatchDefaults = NO_DEFAULTS) -> Path | None:
    """The file that another process may write a configuration into.

    Raises:
        ConfigError: What was given is no path.
    """
    file = options.get("capture_file") or defaults.capture_file
    try:
        return None if file is None else Path(file)
    except TypeError as error:
        raise ConfigError(f"capture_file is {file!r}; pass the path of a file") from error


def _refuse_unknown(options: WatchOptions) -> None:
    known = WatchOptions.__annotations__
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}=?" if near else f"it has {', '.join(known)}"
            raise ConfigError(f"watch has no option {name}=; {hint}")


def _as_tuple(name: str, value: object) -> tuple[object, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{name} is {value!r}; write a sequence, such as {name}=[{value!r}]")
    found = tuple(cast("Iterable[object]", value))
    if name != "roles":
        return found
    try:
        return tuple(Role(role) for role in found)
    except ValueError as error:
        raise ConfigError(f"roles is {value!r}: {error}; a role is one of {', '.join(Role)}") from error
