"""Work that the ranks of the pool do; each returns what it recorded of its collectives."""

import os
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed
import torch.distributed._functional_collectives as functional
from torch import nn
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.agent.collectives.alone import Alone, Row

dist: Any = torch.distributed

Found = dict[str, list[Row]]

STEPS = 8


def net() -> nn.Module:
    """Four layers, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))


def parallel() -> DistributedDataParallel:
    """It under DDP, in several buckets."""
    return DistributedDataParallel(net(), bucket_cap_mb=0.02)


def everything() -> dict[str, Found]:
    """Each kind of work by its name, with the rows of its collectives."""
    works = (by_hand, between_two, one_waits_for_nobody, under_ddp, with_a_hook, sharded, unseen, refused)
    return {work.__name__: _recorded(work) for work in works}


def _recorded(work: Any) -> Found:
    alone = Alone()
    told = work(alone)
    rows = alone.rows()
    gaps = alone.gaps()
    return {"rows": rows, "gaps": gaps, "faults": [dict(alone.run.faults)], "told": [told or {}]}


def by_hand(alone: Alone) -> None:
    """Calls of a step, in the default group and in one of two ranks; one of them in a phase."""
    tensor = torch.ones(3, 4)
    dist.barrier()
    with alone.run.step(7, microstep=2) as step:
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        with step.phase("optimizer"):
            dist.all_gather([torch.empty(3, 4) for _ in range(4)], tensor)
        pair = dist.new_group([0, 1])
        if dist.get_rank() < 2:
            dist.broadcast(torch.ones(5, dtype=torch.float64), 0, group=pair)
        dist.reduce_scatter(torch.empty(2), [torch.ones(2) for _ in range(4)])
        dist.monitored_barrier()
        dist.all_to_all_single(torch.empty(8), torch.ones(8))
    dist.barrier()


def between_two(alone: Alone) -> None:
    """Calls between two ranks of the four, before one of all."""
    del alone
    rank, tensor = dist.get_rank(), torch.ones(2)
    if rank == 0:
        dist.send(tensor, 1)
    if rank == 1:
        dist.recv(tensor, 0)
    if rank > 1:
        what = dist.isend if rank == 2 else dist.irecv
        for each in dist.batch_isend_irecv([dist.P2POp(what, tensor, 5 - rank)]):
            each.wait()
    dist.all_reduce(tensor)


def one_waits_for_nobody(alone: Alone) -> None:
    """Calls whose caller does not wait."""
    del alone
    for _ in range(8):
        work = dist.all_reduce(torch.ones(1000), async_op=True)
        work.wait()


def under_ddp(alone: Alone) -> None:
    """Steps whose collectives are all DDP's own."""
    model = parallel()
    for index in range(STEPS):
        with alone.run.step(index) as step:
            with step.phase("forward"):
                loss = model(torch.ones(2, 64)).sum()
            with step.phase("backward"):
                loss.backward()


def with_a_hook(alone: Alone) -> dict[str, object]:
    """The same with a hook of the user's."""
    model: Any = parallel()
    model.register_comm_hook(None, allreduce_hook)
    for index in range(5):
        with alone.run.step(index):
            model(torch.ones(2, 64)).sum().backward()
    return {"is_the_users": model._comm_hooks == [(allreduce_hook, None)]}


def sharded(alone: Alone) -> None:
    """A step under FSDP2."""
    model = net()
    for layer in model.children():
        fully_shard(layer)
    fully_shard(model)
    with alone.run.step(0):
        model(torch.ones(2, 64)).sum().backward()


def unseen(alone: Alone) -> None:
    """A collective that calls no function of `torch.distributed`."""
    with alone.run.step(4):
        functional.all_reduce(torch.ones(6), "sum", dist.group.WORLD).sum().item()


def refused(alone: Alone) -> dict[str, object]:
    """A call that torch refuses, and one of a group that this rank may not be in."""
    del alone
    pair = dist.new_group([0, 1])
    said = ""
    try:
        dist.all_reduce("no tensor")
    except TypeError as error:
        said = str(error)
    dist.all_reduce(torch.ones(1), group=pair)
    return {"said": said}


def begun_anew() -> Found:
    """The default group, destroyed and made again in the middle of a run."""
    alone = Alone()
    for number in range(2):
        with _default_group(number):
            dist.all_reduce(torch.ones(1))
    return {"rows": alone.rows(), "gaps": alone.gaps()}


@contextmanager
def _default_group(number: int) -> Generator[None]:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world_size, is_master=False)
    dist.init_process_group("gloo", store=PrefixStore(f"anew-{number}", store), rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def losses(*, is_recorded: bool, has_hook: bool) -> list[bytes]:
    """A training's losses and what it made of its parameters, to the bit."""
    alone = Alone() if is_recorded else None
    model = parallel()
    if has_hook:
        model.register_comm_hook(None, allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    found: list[torch.Tensor] = []
    for index in range(4):
        with nullcontext() if alone is None else alone.run.step(index):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 64)).square().mean()
            loss.backward()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            optimizer.step()
            found += [loss, mean]
    assert alone is None or alone.rows()
    return [each.detach().numpy().tobytes() for each in (*found, *model.parameters())]
