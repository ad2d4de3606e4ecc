"""On a GPU the numbers are the host's, and training neither waits for them nor changes by them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from rankscope.probe.attach import attach
from rankscope.probe.meters import Accelerator, DeviceMeter
from rankscope.probe.rows import Numbers, Row, Subject
from rankscope.probe.statistics import norms, table
from rankscope.probe.tensors import Traits
from tests.agent.probe.statistics.plain import differences
from tests.agent.probe.statistics.tensors import FLOATS, WHOLE, odd, typed
from tests.agent.probe.trainings import Criterion, Model, Recorded, batches

pytestmark = pytest.mark.gpu

LONG = 1 << 26
"""Elements of a tensor that takes a GPU longer than the host takes for the step around it."""


def rows_of(values: Sequence[Tensor]) -> list[Row]:
    subject = Subject("x", "", None, "", 1)
    traits = [Traits(str(each.dtype), tuple(each.shape), "", each.numel(), each.numel()) for each in values]
    return [Row(subject, each, 1, 0, 0, 0, 0) for each in traits]


def test_tables_are_those_of_the_host(device: torch.device) -> None:
    given = [typed(values, dtype) for _, values in odd() for dtype in (*FLOATS, *WHOLE[:6])]
    meter, rows = DeviceMeter(Accelerator(device)), rows_of(given)

    meter.tables([each.to(device) for each in given], rows)
    meter.close_step()
    meter.settled(wait=True)

    for values, row in zip(given, rows, strict=True):
        wanted = table(values)
        if values.dtype is torch.float64 and row.numbers.l2 is None:  # its squares leave the range
            wanted = wanted._replace(std=None, l2=None, rms=None)
        assert not differences(row.numbers, wanted, tolerance=1e-6)


def test_norms_are_those_of_the_host(device: torch.device) -> None:
    given = [torch.randn(1 + 9_000 * (index % 5)).to(FLOATS[index % 4]) for index in range(40)]
    given.append(torch.randn(3_000_000))
    meter, rows = DeviceMeter(Accelerator(device)), rows_of(given)

    meter.norms([each.to(device) for each in given], rows)
    meter.close_step()
    meter.settled(wait=True)

    for wanted, row in zip(norms(given), rows, strict=True):
        wrong = differences(row.numbers, Numbers(*wanted[:5]), tolerance=1e-5)
        assert not wrong, wrong


def launches(device: torch.device, many: int) -> int:
    """Kernels that level 1 of so many tensors launches."""
    meter, given = DeviceMeter(Accelerator(device)), [torch.randn(64, 64, device=device) for _ in range(many)]
    meter.norms(given, rows_of(given))
    meter.close_step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        meter.norms(given, rows_of(given))
        meter.close_step()
    torch.cuda.synchronize(device)
    events = cast("Any", profile).key_averages()
    return sum(int(event.count) for event in events if event.key == "cudaLaunchKernel")


def test_hundreds_of_tensors_take_few_launches(device: torch.device) -> None:
    assert launches(device, 400) < 400 / 8


def losses(device: torch.device, *, level: int | None) -> list[float]:
    torch.manual_seed(0)
    model, criterion, recorded = Model().to(device), Criterion(), Recorded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if level is not None:
        attach(recorded.run, model, optimizer=optimizer, loss=criterion, level=level, every=1)
    found: list[Tensor] = []
    for index, (codes, targets) in enumerate(batches(8)):
        with recorded.run.step(index):
            optimizer.zero_grad()
            loss = criterion(model(codes.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
        found.append(loss.detach())
    return cast("list[float]", torch.stack(found).tolist())


@pytest.mark.parametrize("level", [1, 2])
def test_losses_are_the_same_bit_by_bit(device: torch.device, level: int) -> None:
    assert losses(device, level=level) == losses(device, level=None)


@pytest.mark.parametrize("level", [1, 2])
def test_no_step_waits_for_the_device(
    device: torch.device, no_waiting: AbstractContextManager[None], level: int
) -> None:
    # given a training whose batches are on the device, and that has allocated what it needs
    model, criterion, recorded = Model().to(device), Criterion(), Recorded()
    probe = attach(recorded.run, model, loss=criterion, level=level, every=1)
    given = [(codes.to(device), targets.to(device)) for codes, targets in batches(6)]

    def step(index: int) -> None:
        codes, targets = given[index]
        with recorded.run.step(index):
            criterion(model(codes), targets).backward()

    for index in range(3):
        step(index)

    # when what waits raises
    with no_waiting:
        for index in range(3, 6):
            step(index)

    # then nothing did, in no hook either, and every step has its rows
    assert probe.watch.guard.failures == 0
    assert {row["step"] for row in recorded.rows("tensor_stats")} == set(range(6))


def test_what_ran_on_a_side_stream_is_measured_after_it(device: torch.device) -> None:
    recorded, model, side = Recorded(), nn.ModuleList([nn.Identity()]), torch.cuda.Stream(device)
    attach(recorded.run, model, level=2, every=1, include=["*"])
    values = torch.zeros(LONG, device=device)
    torch.cuda.synchronize(device)

    with recorded.run.step(0), torch.cuda.stream(side):
        for _ in range(20):
            values.add_(0.5)
        model[0](values)

    (row,) = recorded.rows("tensor_stats", name="0")
    assert (row["min"], row["max"], row["l1"]) == (10.0, 10.0, 10.0 * LONG)


def test_a_graph_is_captured_and_replayed_under_a_watch(device: torch.device) -> None:
    recorded, model = Recorded(), Model().to(device)
    attach(recorded.run, model, level=2, every=1)
    codes = batches(1)[0][0].to(device)
    with recorded.run.step(0):  # what it sends is on its way while the graph is captured
        wanted = model(codes)
    torch.cuda.synchronize(device)

    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), recorded.run.step(1):
        with torch.cuda.graph(graph):
            output = model(codes)
        graph.replay()

    assert torch.equal(output, wanted)
    assert {row["step"] for row in recorded.rows("tensor_stats")} >= {0}


def test_copies_go_to_pinned_memory(device: torch.device) -> None:
    assert Accelerator(device).host_buffer(10).is_pinned()
