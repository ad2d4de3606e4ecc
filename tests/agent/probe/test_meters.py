"""Numbers read at once and numbers read a step later are the same numbers."""

import math
from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rankscope.probe.configuration import CaptureConfiguration
from rankscope.probe.meters import MAX_PENDING, DeviceMeter, HostMeter, Meter
from rankscope.probe.rows import UNKNOWN, Numbers, Row, Subject
from rankscope.probe.statistics import table
from rankscope.probe.statistics.counted_on_device import SMALL, launch_counts
from rankscope.probe.statistics.layout import is_plain
from rankscope.probe.statistics.on_device import CHUNK
from rankscope.probe.tensors import Measurable, Traits, measurable
from tests.agent.probe.devices import HostAsDevice
from tests.agent.probe.statistics.plain import differences
from tests.agent.probe.statistics.tensors import FLOATS, WHOLE, arranged, odd, typed
from tests.agent.probe.trainings import GRAD, Criterion, Model, Recorded, batches, norm_of, watching

INF, NAN = math.inf, math.nan


def row() -> Row:
    return Row(Subject("x", "", None, "", 1), Traits("float32", (1,), "", 1, 1), 1, 0, 0, 0, 0)


def row_of(values: Tensor) -> Row:
    """A row about a tensor."""
    made = row()
    made.tensor = made.tensor._replace(numel=values.numel())
    return made


def measured(meter: Meter, values: Sequence[Tensor]) -> list[Numbers]:
    rows = [row() for _ in values]
    meter.norms(values, rows)
    meter.close_step()
    meter.settled(wait=True)
    return [each.numbers for each in rows]


FINITE = [torch.tensor([3.0, -4.0]), torch.tensor([[0.0]]), torch.full((7,), 2.0, dtype=torch.bfloat16)]


def test_finite_tensors_have_the_same_numbers_on_both() -> None:
    host, device = measured(HostMeter(), FINITE), measured(DeviceMeter(HostAsDevice()), FINITE)

    assert host[0] == Numbers(nonfinite_count=0, nan_count=0, inf_count=0, absmax=4.0, l2=5.0)
    for left, right in zip(host, device, strict=True):
        assert left[:4] == right[:4]
        assert left.l2 == pytest.approx(right.l2, rel=1e-6)


def test_a_device_counts_nonfinite_elements_and_leaves_out_what_it_cannot_tell() -> None:
    (numbers,) = measured(DeviceMeter(HostAsDevice()), [torch.tensor([1.0, NAN, INF])])

    assert numbers == Numbers(nonfinite_count=2)


def test_a_norm_that_float32_cannot_hold_is_absent_and_no_infinite_element() -> None:
    (numbers,) = measured(DeviceMeter(HostAsDevice()), [torch.tensor([3e38, 3e38])])

    assert numbers.l2 is None
    assert numbers.nonfinite_count == 0
    assert numbers.absmax == pytest.approx(3e38)


@pytest.mark.parametrize("value", [1e200, 1e-200])
def test_float64_norms_are_right_where_squares_leave_the_range(value: float) -> None:
    (numbers,) = measured(HostMeter(), [torch.full((4,), value, dtype=torch.float64)])

    assert numbers.l2 == pytest.approx(2 * value)


@pytest.mark.parametrize("shape", [(300, 1000), (1,), (65_536,), (65_537,)])
def test_the_norm_of_a_large_tensor_is_as_exact_as_one_summed_in_float64(shape: tuple[int, ...]) -> None:
    values = torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 0.5

    (numbers,) = measured(HostMeter(), [values])

    assert numbers.l2 == pytest.approx(norm_of(values), rel=1e-6)


def test_a_transposed_tensor_has_the_norm_of_its_elements() -> None:
    values = torch.arange(12.0).view(3, 4)

    assert measured(HostMeter(), [values.t()])[0].l2 == pytest.approx(norm_of(values), rel=1e-6)


def test_a_tensor_without_a_finite_element_has_counts_only() -> None:
    (numbers,) = measured(HostMeter(), [torch.tensor([NAN, INF, -INF])])

    assert numbers == Numbers(nonfinite_count=3, nan_count=1, inf_count=2)


def test_what_a_device_has_not_finished_is_not_waited_for() -> None:
    device = HostAsDevice()
    device.is_behind = True
    meter = DeviceMeter(device)
    late = row()

    meter.finiteness(torch.ones(3), late)
    meter.close_step()

    assert meter.settled(wait=False) == []
    assert late.numbers == UNKNOWN
    assert device.waits == 0
    device.is_behind = False
    assert meter.settled(wait=False) == [late]
    assert late.numbers.nonfinite_count == 0


def test_values_overwritten_in_place_later_in_the_step_are_told_as_they_were() -> None:
    meter, values, early = DeviceMeter(HostAsDevice()), torch.tensor([INF, 1.0]), row()

    meter.finiteness(values, early)
    values.zero_()
    meter.close_step()

    assert meter.settled(wait=True)[0].numbers.nonfinite_count == 1


def test_a_device_that_stays_behind_costs_rows_not_time() -> None:
    device = HostAsDevice()
    device.is_behind = True
    meter = DeviceMeter(device)

    for _ in range(MAX_PENDING + 3):
        meter.finiteness(torch.ones(1), row())
        meter.close_step()

    assert meter.overdue() == 3
    assert meter.overdue() == 0


@pytest.mark.parametrize("length", [1_000, CHUNK])
def test_a_device_has_the_tables_that_the_host_has(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.probe.statistics.on_device.CHUNK", 2_048 if length == 1_000 else length)
    given = [typed(values, dtype) for _, values in odd() for dtype in FLOATS]
    given += [typed(values, dtype) for _, values in list(odd())[::5] for dtype in WHOLE]
    given += [values for _, values in arranged() if not values.is_complex()]
    meter, rows = DeviceMeter(HostAsDevice()), [row_of(values) for values in given]

    meter.tables(given, rows)
    meter.finiteness(given[0], row())
    meter.close_step()
    meter.settled(wait=True)

    for values, each in zip(given, rows, strict=True):
        wanted, found = table(values), each.numbers
        if found.fingerprint is None:  # of elements that do not lie one after the other
            assert not is_plain(values)
            found = found._replace(fingerprint=wanted.fingerprint)
        absent = [name for name in ("std", "l2", "rms") if getattr(found, name) is None is not getattr(wanted, name)]
        wanted = wanted._replace(**dict.fromkeys(absent, None))
        assert not absent or values.dtype is torch.float64
        assert not differences(found, wanted, tolerance=1e-6)


def test_an_8_bit_float_is_measured_by_the_limits_of_its_own_type() -> None:
    prepared = measurable(torch.tensor([448.0, 0.001953125, 0.0]).to(torch.float8_e4m3fn))
    assert isinstance(prepared, Measurable)
    each = row_of(prepared.values)

    HostMeter().tables([prepared.values], [each])

    assert (each.numbers.saturated_count, each.numbers.subnormal_count, each.numbers.zero_count) == (1, 1, 1)


class Launches(TorchDispatchMode):
    """Counts the operations that a device would launch: those that make no view."""

    VIEWS = ("view", "reshape", "detach", "split", "select", "slice", "alias", "unsqueeze", "expand", "lift_fresh")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        self.count += not any(part in str(func) for part in self.VIEWS)
        return func(*args, **kwargs or {})


def launches(many: int, dtype: torch.dtype) -> int:
    """What level 1 of so many tensors launches on a device, until their numbers are on their way."""
    meter, given = DeviceMeter(HostAsDevice()), [torch.randn(3, 5).to(dtype) for _ in range(many)]
    meter.norms(given, [row() for _ in given])
    meter.close_step()  # once, so that what is kept from step to step is there
    with Launches() as mode:
        meter.norms(given, [row() for _ in given])
        meter.close_step()
    return mode.count


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_level_1_of_many_tensors_takes_the_launches_of_a_few(dtype: torch.dtype) -> None:
    assert launches(4, dtype) == launches(300, dtype) <= 15


@pytest.mark.parametrize("most", [SMALL, 4])
def test_counts_of_many_tensors_are_those_of_each(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, amount in (("SMALL", most), ("CHUNK", 2 * most), ("PART", 4)):
        monkeypatch.setattr(f"rankscope.probe.statistics.counted_on_device.{name}", amount)
    given = [torch.full((index % 7,), INF if index % 3 else 1.0).to(FLOATS[index % 4]) for index in range(40)]
    given += [torch.tensor([[NAN, 1.0], [-INF, 2.0]]).t(), torch.tensor(NAN)]

    counted = launch_counts(given)

    found = dict(zip(counted.order, cast("list[int]", torch.cat(counted.counts).tolist()), strict=True))
    assert found == {index: int(values.isfinite().logical_not().sum()) for index, values in enumerate(given)}


def test_while_a_graph_is_captured_nothing_travels_or_is_asked_for() -> None:
    device, late = HostAsDevice(), row()
    meter = DeviceMeter(device)
    meter.finiteness(torch.ones(2), late)

    device.is_in_graph = True
    meter.close_step()

    assert (meter.settled(wait=False), device.buffers) == ([], 0)
    device.is_in_graph = False
    meter.close_step()
    assert meter.settled(wait=False) == [late]


def test_host_buffers_are_made_once_and_reused() -> None:
    device = HostAsDevice()
    meter = DeviceMeter(device)

    for _ in range(20):
        measured(meter, FINITE)

    assert device.buffers == 1


def test_one_copy_per_step_carries_all_its_numbers() -> None:
    device = HostAsDevice()
    device.is_behind = True
    meter = DeviceMeter(device)
    rows = [row() for _ in range(5)]

    for each in rows[:2]:
        meter.finiteness(torch.ones(2), each)
    meter.norms(FINITE, rows[2:])
    meter.close_step()

    assert meter.settled(wait=True) == rows
    assert device.waits == 1
    assert [each.numbers.absmax for each in rows] == [None, None, 4.0, 0.0, 2.0]


def test_a_nonfinite_value_that_is_read_late_still_makes_a_later_step_be_captured_in_full() -> None:
    recorded, device, model, criterion = Recorded(), HostAsDevice(), Model(), Criterion()
    watch = watching(recorded, model, CaptureConfiguration(every=100), meter_for=lambda _device: DeviceMeter(device))
    watch.hook(optimizers=[], scaler=None, criterion=criterion, loader=None)

    for index, (codes, targets) in enumerate(batches(6)):
        model.overflow(1, on=index == 2)
        device.is_behind = index < 4
        model.zero_grad()
        with recorded.run.step(index):
            criterion(model(codes), targets).backward()
    watch.detach()

    assert {row["step"] for row in recorded.rows("tensor_stats", role=GRAD)} == {0, 4}
    bad = [row for row in recorded.rows("tensor_stats") if row["nonfinite_count"]]
    assert (bad[0]["step"], bad[0]["name"]) == (2, "blocks.1")
