"""Trainings that run on every rank of the pool; each returns what its rank recorded."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rankscope.probe.attach import attach
from tests.agent.probe.trainings import Criterion, Model, Recorded, Row, batches, norm_of

Rows = dict[str, list[Row]]


def data_parallel(*, steps: int, every: int = 1, bad_rank: int = -1, bad_step: int = -1) -> Rows:
    """Train under DDP on data of the rank's own; one rank's second block overflows in one step."""
    torch.manual_seed(0)
    recorded, model, criterion = Recorded(), Model(), Criterion()
    parallel = DistributedDataParallel(model)
    attach(recorded.run, parallel, loss=criterion, every=every)
    for index, (codes, targets) in enumerate(batches(steps, seed=dist.get_rank())):
        model.overflow(1, on=dist.get_rank() == bad_rank and index == bad_step)
        parallel.zero_grad()
        with recorded.run.step(index):
            criterion(parallel(codes), targets).backward()
    return {section: recorded.rows(section) for section in ("tensor_stats", "spans")}


def accumulating() -> Rows:
    """One step of two microsteps; gradients are reduced in the second only."""
    recorded, model, criterion = Recorded(), Model(), Criterion()
    parallel = DistributedDataParallel(model)
    attach(recorded.run, parallel, loss=criterion)
    (first, second) = batches(2, seed=dist.get_rank())
    with recorded.run.step(0):
        with parallel.no_sync():
            criterion(parallel(first[0]), first[1]).backward()
        criterion(parallel(second[0]), second[1]).backward()
    return {"tensor_stats": recorded.rows("tensor_stats")}


def reduction_is_over_at_the_end_of_backward() -> dict[str, float]:
    """The norm of one reduced gradient as recorded, and as it is after backward."""
    recorded, model, criterion = Recorded(), Model(), Criterion()
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    attach(recorded.run, parallel, loss=criterion)
    codes, targets = batches(1, seed=dist.get_rank())[0]
    with recorded.run.step(0):
        criterion(parallel(codes), targets).backward()
    (row,) = recorded.rows("tensor_stats", name="head.weight", flags=8)
    return {"recorded": row["l2"], "actual": norm_of(model.head.weight.grad)}
