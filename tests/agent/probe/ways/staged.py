"""Pipeline schedules that run over every rank of the pool; each returns what its rank recorded and what is so there."""

import copy
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.pipelining import PipelineStage, schedules

from rankscope.probe.attach import attach
from tests.agent.probe.trainings import Recorded, norm_of
from tests.agent.probe.ways.sharded import Outcome, told

MICROBATCHES = 4


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss: a sum, so that microbatches add up to the whole batch."""
    return (outputs - targets).square().sum()


def one_stage_a_rank(*, schedule: str) -> Outcome:
    """Train one stage on each rank, by a schedule's name."""
    layers, inputs, targets = _problem(dist.get_world_size())
    rank = dist.get_rank()
    stage = PipelineStage(layers[rank], rank, len(layers), torch.device("cpu"))
    runs = getattr(pipelining, schedule)(stage, MICROBATCHES, loss_fn=squares, scale_grads=False)
    return _outcome(runs, layers[rank], own=[rank], data=(inputs, targets), layers=layers)


def two_stages_a_rank(*, schedule: str) -> Outcome:
    """Train two stages on each rank, watched in one list, by the name of a schedule that interleaves them."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    layers, inputs, targets = _problem(2 * ranks)
    own = [rank, ranks + rank]
    stages = [PipelineStage(layers[place], place, len(layers), torch.device("cpu")) for place in own]
    runs = getattr(schedules, schedule)(stages, MICROBATCHES, loss_fn=squares, scale_grads=False)
    model = nn.ModuleList([layers[place] for place in own])
    return _outcome(runs, model, own=own, data=(inputs, targets), layers=layers)


def _problem(amount: int) -> tuple[list[nn.Module], Tensor, Tensor]:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(amount)]
    return layers, torch.randn(2 * MICROBATCHES, 4), torch.randn(2 * MICROBATCHES, 4)


def _outcome(
    runs: Any, model: nn.Module, *, own: list[int], data: tuple[Tensor, Tensor], layers: list[nn.Module]
) -> Outcome:
    plain = nn.Sequential(*copy.deepcopy(layers))
    totals: list[list[float]] = []
    for inputs, targets in zip(*(each.chunk(MICROBATCHES) for each in data), strict=True):
        squares(plain(inputs), targets).backward()
        totals.append([norm_of(cast("Any", plain[place])[0].weight.grad) for place in own])
    recorded, rank = Recorded(), dist.get_rank()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    probe = attach(recorded.run, model, optimizer=optimizer, level=2, every=1, budget=None)
    with recorded.run.step(0):
        first, last = (data[:1] if rank == 0 else ()), rank == dist.get_world_size() - 1
        runs.step(*first, **({"target": data[1], "losses": []} if last else {}))
        optimizer.step()
    gaps = [str(row["detail"]) for row in recorded.rows("gaps")]
    return {"rows": told(recorded), "totals": totals, "gaps": gaps, "failures": probe.watch.guard.failures}
