"""Trainings that run on every rank of the pool; each returns what its rank recorded and what is plainly so there."""

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from rankscope.probe.attach import attach
from rankscope_proto.names import Role
from tests.agent.probe.trainings import Criterion, Model, Recorded, Row, batches, norm_of

Outcome = dict[str, Any]


def local_norm(tensor: Tensor | None) -> float:
    """The norm of this rank's part."""
    assert isinstance(tensor, DTensor)
    return norm_of(tensor.to_local())


def told(recorded: Recorded) -> list[Row]:
    """Rows of weights and gradients, and the gaps."""
    roles = {Role.WEIGHT.code, Role.GRAD.code, Role.GRAD_INCREMENT.code, Role.UPDATE.code}
    return [row for row in recorded.rows("tensor_stats") if row["role"] in roles]


def fully_sharded(*, watching: list[int]) -> Outcome:
    """Train a model whose parameters are sharded over all ranks; only some ranks watch."""
    torch.manual_seed(0)
    recorded, model, criterion = Recorded(), Model(), Criterion()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if dist.get_rank() in watching:
        attach(recorded.run, model, loss=criterion, optimizer=optimizer, level=2, every=1, budget=None)
    weights = {name: local_norm(each) for name, each in model.named_parameters()}
    with recorded.run.step(0):
        for codes, targets in batches(2, seed=dist.get_rank()):
            criterion(model(codes), targets).backward()
        gradients = {name: local_norm(each.grad) for name, each in model.named_parameters()}
        optimizer.step()
    shapes = {name: list(cast("DTensor", each).to_local().shape) for name, each in model.named_parameters()}
    gaps = [str(row["detail"]) for row in recorded.rows("gaps")]
    return {"rows": told(recorded), "weights": weights, "gradients": gradients, "shapes": shapes, "gaps": gaps}


def tensor_parallel() -> Outcome:
    """Train a small perceptron whose layers are split over the ranks."""
    torch.manual_seed(0)
    recorded = Recorded()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan: dict[str, ParallelStyle] = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)), mesh, plan)
    attach(recorded.run, model, level=2, every=1, budget=None)
    with recorded.run.step(0):
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
    gradients = {name: local_norm(each.grad) for name, each in model.named_parameters()}
    return {"rows": told(recorded), "gradients": gradients}


def accumulating(*, bucket_view: bool) -> Outcome:
    """Two microsteps under data parallelism, reduced in the second only."""
    torch.manual_seed(0)
    recorded, model, criterion = Recorded(), Model(), Criterion()
    data = batches(2, seed=dist.get_rank())
    alone: list[tuple[Tensor, ...]] = [
        torch.autograd.grad(criterion(model(codes), targets), list(model.parameters())) for codes, targets in data
    ]
    names = [name for name, _ in model.named_parameters()]
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=bucket_view)
    attach(recorded.run, parallel, loss=criterion, every=1, budget=None)
    with recorded.run.step(0):
        with parallel.no_sync():
            criterion(parallel(data[0][0]), data[0][1]).backward()
        criterion(parallel(data[1][0]), data[1][1]).backward()
    totals = [first + second for first, second in zip(*alone, strict=True)]
    return {
        "rows": told(recorded),
        "increments": dict(zip(names, map(norm_of, alone[1]), strict=True)),
        "totals": dict(zip(names, map(norm_of, totals), strict=True)),
        "reduced": {name: norm_of(each.grad) for name, each in model.named_parameters()},
    }
