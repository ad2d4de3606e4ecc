"""The graph of one model in the wrappers of distributed training; runs on every rank of the pool."""

from typing import Any, cast

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from rankscope.probe.graph import nodes_of, written_class
from tests.agent.probe.trainings import Model

Graph = list[tuple[str, str, str, int | None]]


def _graph(model: nn.Module) -> Graph:
    return [
        (node.path, written_class(node.module).__name__, str(node.layer_type), node.layer_index)
        for node in nodes_of(model)
    ]


def _sharded() -> nn.Module:
    model = Model()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def _sharded_the_old_way() -> nn.Module:
    model = Model()
    for at, block in enumerate(model.blocks):
        model.blocks[at] = FullyShardedDataParallel(block, device_id=torch.device("cpu"), use_orig_params=True)
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def _nested() -> nn.Module:
    model = Model()
    for at, block in enumerate(model.blocks):
        compiled = cast("nn.Module", torch.compile(block, backend="eager"))
        model.blocks[at] = cast("Any", checkpointing).checkpoint_wrapper(compiled)
    return cast("nn.Module", torch.compile(DistributedDataParallel(model), backend="eager"))


def graphs() -> dict[str, Graph]:
    """The graph of the model as it is, and in each kind of wrapper."""
    return {
        "plain": _graph(Model()),
        "fsdp2": _graph(_sharded()),
        "fsdp1": _graph(_sharded_the_old_way()),
        "compiled, checkpointed, data parallel": _graph(_nested()),
    }
