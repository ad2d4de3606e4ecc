"""The few parts of torch that it does not export or does not type, each behind one typed function.

Every one is there from torch 2.4 to 2.13; a release that moves one breaks this file and no other.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

_torch = cast("Any", torch)


def number(tensor: Tensor) -> float:
    """The value of a 0-d CPU tensor. `tolist` reads memory; `item` would go through the dispatcher."""
    return cast("Any", tensor).tolist()


def numbers(tensor: Tensor) -> list[float]:
    """The values of a 1-d CPU tensor, integers as int."""
    return cast("Any", tensor).tolist()


def l2_norm(tensor: Tensor) -> float:
    """The norm of a CPU tensor, accumulated in fp64."""
    return number(_torch.linalg.vector_norm(tensor, dtype=torch.float64))


def foreach_norm(tensors: Sequence[Tensor], order: float) -> list[Tensor]:
    """The norm of each tensor, in few launches."""
    return _torch._foreach_norm(tensors, order)


def is_transformed(tensor: Tensor) -> bool:
    """Whether vmap, grad or another transform wraps the tensor, which then has no values of its own."""
    return _torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def local_part(tensor: Tensor) -> tuple[Tensor, str]:
    """This rank's part of a distributed tensor and its placement; no collective. Others: the tensor itself and ""."""
    distributed = cast("Any", sys.modules.get("torch.distributed.tensor"))
    if distributed is None or not isinstance(tensor, distributed.DTensor):
        return tensor, ""
    shard = cast("Any", tensor)
    return shard.to_local(), ",".join(str(placement) for placement in shard.placements)


def current_backward() -> int:
    """Number of the autograd engine's run on this thread; -1 outside of one."""
    return _torch._C._current_graph_task_id()


def is_in_backward() -> bool:
    """Whether the code runs inside backward: a checkpointed forward that is computed again."""
    return current_backward() != -1


def queue_callback(callback: Callable[[], None]) -> None:
    """Have the autograd engine call back when its current run is done, after the callbacks queued so far."""
    cast("Any", torch.autograd.Variable)._execution_engine.queue_callback(callback)
