"""The one way to a probe of a model in this process, and the rules for more than one.

Watching a model again replaces its watch: the earlier one is detached, so nothing is recorded twice.
Further models of the same run get a path prefix of their own (`model2`, `model3`, …), so that the
generator's and the discriminator's `0.weight` stay two tensors.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Unpack, cast
from weakref import WeakSet

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from rankscope.errors import ConfigError
from rankscope.probe.graph import unwrapped
from rankscope.probe.loader import TimedLoader
from rankscope.probe.local import LocalProbe
from rankscope.probe.options import WatchOptions, capture_file_of, configuration_of
from rankscope.probe.ports import Recording
from rankscope.probe.torch_inner import is_scripted
from rankscope.probe.watch import Watch
from rankscope_proto.names import RunStatus

if TYPE_CHECKING:
    from rankscope._run import Run

logger = logging.getLogger(__name__)

_live: WeakSet[Watch] = WeakSet()


def attach(run: "Run", model: nn.Module, **options: Unpack[WatchOptions]) -> LocalProbe:
    """Hook a run into a model.

    Args:
        run: What to record into. If it records nothing, nothing is hooked.
        model: The model as it is trained: hand over the data-parallel wrapper, so that reduced gradients are seen.
        **options: See `WatchOptions`.

    Returns:
        The probe; it is live.

    Raises:
        ConfigError: If an option is of the wrong kind or out of range, or a breakpoint cannot be armed.
    """
    defaults = run._info.watch  # pyright: ignore[reportPrivateUsage] internal to this distribution
    configuration = configuration_of(options, defaults)
    file = capture_file_of(options, defaults)
    optimizers, scaler = _optimizers(options.get("optimizer")), options.get("scaler")
    criterion, loader = options.get("loss"), options.get("loader")
    _check("the model", model, kind=nn.Module, instead="an nn.Module")
    if is_scripted(model):
        raise ConfigError(
            f"{type(model).__name__} is a scripted module, which takes no hooks; watch the model that it was made of, "
            "or a module around it"
        )
    if scaler is not None:
        _check("scaler", scaler, kind=GradScaler, instead="a torch.amp.GradScaler")
    if criterion is not None:
        _check("loss", criterion, kind=nn.Module, instead="an nn.Module criterion, or call step.loss(tensor) yourself")
    recording: Recording = run._recording  # pyright: ignore[reportPrivateUsage] internal to this distribution
    earlier = _earlier(model)
    root = _free_root(recording, beside=earlier)
    watch = Watch(recording, model, configuration=configuration, root=root, file=file)
    if not run.is_recording:
        _replace(earlier, model)
        watch.detach()
        return LocalProbe(watch, _header(run))
    try:
        probe = LocalProbe(watch, _header(run))
        if loader is not None:
            TimedLoader(loader, watch).restore()  # whatever is refused is refused before the earlier watch comes off
        _replace(earlier, model)
        watch.hook(optimizers=optimizers, scaler=scaler, criterion=criterion, loader=loader)
    except Exception:
        watch.detach()
        raise
    _live.add(watch)
    return probe


def _header(run: "Run") -> dict[str, object]:
    """What a condition of a breakpoint may name that is the same for all rows of the process."""
    identity = run._recording.identity  # pyright: ignore[reportPrivateUsage] internal to this distribution
    return {
        "project": identity.project,
        "run_id": identity.run_id,
        "launch_id": identity.launch_id,
        "process_role": identity.process_role.code,
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "world_size": identity.world_size,
        "node": identity.node,
        "mesh": dict(identity.mesh),
        "run.name": run.name,
        "run.tag": list(run.tags),
        "run.config": run.config,
        "run.status": RunStatus.RUNNING.code,
    }


def _optimizers(told: Optimizer | Sequence[Optimizer] | None) -> list[Optimizer]:
    if told is None:
        return []
    several = list(told) if isinstance(told, list | tuple) else [cast("Optimizer", told)]
    for optimizer in several:
        _check("optimizer", optimizer, kind=Optimizer, instead="a torch.optim.Optimizer, or several in a list")
    return several


def _check(what: str, value: object, *, kind: type, instead: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{what} is a {type(value).__name__}; pass {instead}")


def _earlier(model: nn.Module) -> list[Watch]:
    """The watches of a model that it already has."""
    return [watch for watch in _live if watch.model is not None and unwrapped(watch.model) is unwrapped(model)]


def _replace(earlier: Iterable[Watch], model: nn.Module) -> None:
    for watch in earlier:
        logger.warning("%s is watched already: that watch is detached, this one goes on", type(model).__name__)
        watch.detach()


def _free_root(recording: Recording, *, beside: Collection[Watch]) -> str:
    """A path that no other model of the run has; that of a watch that is about to come off is free."""
    others = [watch for watch in _live if watch not in beside]
    taken = {watch.root for watch in others if watch.model is not None and watch.recording is recording}
    return next(root for number in count(1) if (root := "" if number == 1 else f"model{number}") not in taken)
