"""The few parts of torch that it does not export or does not type, each behind one typed function.

Every one is there from torch 2.4 to 2.13; a release that moves one breaks this file and no other.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

_torch = cast("Any", torch)


# Where a name below is torch's own function, a call of it costs no Python frame.

number = cast("Callable[[Tensor], float]", Tensor.tolist)
"""The value of a 0-d CPU tensor. `tolist` reads memory; `item` would go through the dispatcher."""

numbers = cast("Callable[[Tensor], list[float]]", Tensor.tolist)
"""The values of a 1-d CPU tensor, integers as int."""

is_transformed = cast("Callable[[Tensor], bool]", _torch._C._functorch.is_functorch_wrapped_tensor)
"""Whether vmap, grad or another transform wraps the tensor, which then has no values of its own."""

current_backward = cast("Callable[[], int]", _torch._C._current_graph_task_id)
"""Number of the autograd engine's run on this thread; -1 outside of one. Inside one, a forward that runs is
a checkpointed one that is computed again."""

OUTSIDE = -1
"""What `current_backward` says outside of one."""

queue_callback = cast("Callable[[Callable[[], None]], None]", _torch.autograd.Variable._execution_engine.queue_callback)
"""Has the autograd engine call back when its current run is done, after the callbacks queued so far."""


def trains_alone() -> bool:
    """Whether no process group is set up and no Horovod loaded: no rank's gradients are reduced with another's."""
    if "horovod" in sys.modules:
        return False
    distributed = cast("Any", sys.modules.get("torch.distributed"))
    return distributed is None or not distributed.is_available() or not distributed.is_initialized()


def is_sole_hook(parameter: Tensor) -> bool:
    """Whether a parameter has one post-accumulate hook: the caller's. Another may use the gradient up."""
    return len(cast("Any", parameter)._post_accumulate_grad_hooks or ()) <= 1


def is_sole_forward_hook(module: nn.Module) -> bool:
    """Whether a module has one forward hook, the caller's, or none. Another may change the output that ours sees."""
    return len(cast("Any", module)._forward_hooks) <= 1


def version_of(tensor: Tensor) -> int:
    """How often a tensor was written; -1 of one that was made in inference mode, which does not count."""
    return -1 if tensor.is_inference() else tensor._version


class Removable(Protocol):
    """A hook that was put on."""

    def remove(self) -> object:
        """Take it off."""
        ...


on_gradient = cast("Callable[[Tensor, Callable[[Tensor], None]], Removable]", Tensor.register_hook)
"""Has a tensor's gradient told when autograd has computed it."""


def live_scale(scaler: object) -> Tensor | None:
    """What a gradient scaler multiplies losses with now, where it keeps it; None: nothing was scaled yet, or it is off.

    `get_scale` would read it, and make the host wait for the device.
    """
    known = cast("Any", scaler)
    return cast("Tensor | None", known._get_scale_async()) if known.is_enabled() else None


def leaves_out_itself(optimizer: object) -> bool:
    """Whether a scaler has handed an optimizer its overflow check: a step that begins may still change nothing."""
    return getattr(optimizer, "found_inf", None) is not None


def is_fully_sharded(module: object) -> bool:
    """Whether data parallelism shards the module's parameters, so that a gradient of theirs is reduced already."""
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)


def is_flattened(module: object) -> bool:
    """Whether data parallelism of the first kind has made one flat vector of the module's parameters."""
    names = {kind.__name__ for kind in type(module).__mro__}
    return "FullyShardedDataParallel" in names and not getattr(module, "_use_orig_params", False)


def is_scripted(module: object) -> bool:
    """Whether a module is one of the script compiler's, which takes no hooks; one that was traced takes them."""
    return type(module).__name__ == "RecursiveScriptModule"


def norms64(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Norm of each tensor, 0-d; accumulated in fp64, and on its device."""
    return _torch._foreach_norm(tensors, 2, dtype=torch.float64)


def ratios(norms: Sequence[Tensor], of: Sequence[Tensor]) -> list[Tensor]:
    """Each norm over another, as float32."""
    return [ratio.float() for ratio in _torch._foreach_div(norms, of)]


def subtract(after: Tensor, before: Tensor) -> None:
    """Put `after - before` in the place of `before`."""
    _torch.sub(after, before, out=before)


def sample(amount: int, below: int, *, seed: int) -> Tensor:
    """int64[amount], ascending, without repetition, each below `below`; the global generator is not touched."""
    generator = torch.Generator("cpu").manual_seed(seed)
    # Drawn with repetition first: a permutation of all would cost 8 bytes for each.
    drawn = _torch.unique(_torch.randint(0, below, (2 * amount,), generator=generator, device="cpu"))
    if drawn.numel() < amount:
        return _torch.randperm(below, generator=generator, device="cpu")[:amount].sort().values
    chosen = _torch.randperm(drawn.numel(), generator=generator, device="cpu")[:amount]
    return drawn[chosen].sort().values


def foreach_norm(tensors: Sequence[Tensor], order: float, *, dtype: torch.dtype | None = None) -> list[Tensor]:
    """The norm of each tensor, in few launches; accumulated and returned in a type, of the same as theirs."""
    return _torch._foreach_norm(tensors, order, dtype=dtype)


def is_fake(tensor: Tensor) -> bool:
    """Whether a tensor has a shape and a type, and stands for values that are nowhere."""
    fake = cast("Any", sys.modules.get("torch._subclasses.fake_tensor"))
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def local_part(tensor: Tensor) -> tuple[Tensor, str]:
    """This rank's part of a distributed tensor and its placement; no collective. Others: the tensor itself and ""."""
    distributed = cast("Any", sys.modules.get("torch.distributed.tensor"))
    if distributed is None or not isinstance(tensor, distributed.DTensor):
        return tensor, ""
    shard = cast("Any", tensor)
    return shard.to_local(), ",".join(str(placement) for placement in shard.placements)
