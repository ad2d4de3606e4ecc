"""How a tensor's numbers come about: at once on the CPU, one step later on a device.

A meter is handed a tensor while its values are those the program computed (an in-place operation may
overwrite them a moment later) and keeps numbers, never the tensor. On the CPU the numbers are read on
the spot. On a device, reading would make the host wait; there every number stays a 0-d tensor until
the step ends, when all of them travel in one copy, which is read when its event has passed.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rankscope.probe.rows import Numbers, Row
from rankscope.probe.statistics import norms, tables
from rankscope.probe.statistics.counted_on_device import launch_counts
from rankscope.probe.statistics.on_device import Launched, launch
from rankscope.probe.statistics.on_device import arrived as table_of
from rankscope.probe.tensors import summable
from rankscope.probe.torch_inner import foreach_norm, number, numbers

MAX_PENDING = 8
"""Copies in flight per device; beyond it the oldest is given up rather than waited for."""


class Meter(Protocol):
    """Keeps rows until their numbers are known; a row's numbers are filled when they are."""

    def finiteness(self, values: Tensor, row: Row) -> None:
        """Count the non-finite elements; cheap where there are none."""
        ...

    def norms(self, values: Sequence[Tensor], rows: Sequence[Row]) -> None:
        """Norm and greatest magnitude over the finite elements, and the non-finite elements apart."""
        ...

    def tables(self, values: Sequence[Tensor], rows: Sequence[Row]) -> None:
        """Every statistic of the table."""
        ...

    def close_step(self) -> None:
        """The step is over: what is pending may start to travel."""
        ...

    def settled(self, *, wait: bool) -> list[Row]:
        """Rows whose numbers have become known since the last call; `wait` for all of them (never in a step)."""
        ...

    def overdue(self) -> int:
        """Rows given up since the last call, because waiting for them would hold training up."""
        ...


class HostMeter:
    """Measures CPU tensors on the spot; exact, also where elements are not finite."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def finiteness(self, values: Tensor, row: Row) -> None:
        """A sum is finite only if every element is; where it is not, elements are counted."""
        # A sum in fp16 would overflow with finite elements; one in fp32 may too, and then they are counted.
        values = summable(values)
        total = values.sum() if values.itemsize >= 4 else values.sum(dtype=torch.float32)
        row.numbers = FINITE if math.isfinite(number(total)) else _count(values)
        self._rows.append(row)

    def norms(self, values: Sequence[Tensor], rows: Sequence[Row]) -> None:
        """One pass over all of them by the kernel, two in torch's operations."""
        for row, made in zip(rows, norms(values), strict=True):
            row.numbers = made
        self._rows += rows

    def tables(self, values: Sequence[Tensor], rows: Sequence[Row]) -> None:
        """One pass over all of them; what a sparse tensor does not store is zeros."""
        zeros = [row.tensor.numel - tensor.numel() for tensor, row in zip(values, rows, strict=True)]
        for row, made in zip(rows, tables(values, zeros), strict=True):
            row.numbers = made
        self._rows += rows

    def close_step(self) -> None:
        """Nothing is on its way."""

    def settled(self, *, wait: bool) -> list[Row]:
        """Every row: its numbers are known when it is made."""
        del wait
        rows, self._rows = self._rows, []
        return rows

    def overdue(self) -> int:
        """None, ever."""
        return 0


FINITE = Numbers(nonfinite_count=0, nan_count=0, inf_count=0)


def _count(values: Tensor) -> Numbers:
    nan, inf = int(number(values.isnan().sum())), int(number(values.isinf().sum()))
    return Numbers(nonfinite_count=nan + inf, nan_count=nan, inf_count=inf)


class Event(Protocol):
    """A point on a device's stream."""

    def query(self) -> bool:
        """Whether the device has passed it; never waits."""
        ...

    def synchronize(self) -> object:
        """Wait for it."""
        ...


class Device(Protocol):
    """What a meter needs of an accelerator; `Accelerator` is the real one."""

    def host_buffer(self, size: int) -> Tensor:
        """float32[size] on the host, that the device can copy to without making the host wait."""
        ...

    def send(self, packed: Tensor, host: Tensor) -> Event:
        """Start a copy to the host; returns the event that has passed when `host` may be read."""
        ...

    def launched(self) -> None:
        """Something was launched, on the stream that is current now."""
        ...

    def join(self, made: Sequence[Tensor]) -> None:
        """Have the current stream go on after all that was launched; what that has made may be read on it."""
        ...

    def is_capturing(self) -> bool:
        """Whether a graph is being captured, during which nothing may be copied, pinned or asked for."""
        ...


class Accelerator:
    """An accelerator, through torch's device-generic interface.

    Args:
        device: Which one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module = torch.get_device_module(device)
        self._streams: set[Any] = set()

    def host_buffer(self, size: int) -> Tensor:
        """Pinned, or the copy would be synchronous."""
        return torch.empty(size, dtype=torch.float32, device="cpu", pin_memory=True)

    def send(self, packed: Tensor, host: Tensor) -> Event:
        """Copy on the device's current stream, which backward has joined when the step ends."""
        # An event belongs to the device that is current when it is recorded, whatever tensors it is meant for.
        with self._module.device(self._device):
            host.copy_(packed, non_blocking=True)
            event = self._module.Event()
            event.record()
        return event

    def launched(self) -> None:
        """Hooks run on the stream that their module or its backward ran on, which a program may have chosen."""
        current = getattr(self._module, "current_stream", None)
        if current is not None:
            self._streams.add(current(self._device))

    def join(self, made: Sequence[Tensor]) -> None:
        """By events between the streams: the host waits for none of them."""
        streams, self._streams = self._streams, set()
        if not streams:
            return
        current: Any = self._module.current_stream(self._device)
        others = [stream for stream in streams if stream != current]
        for stream in others:
            current.wait_stream(stream)
        for tensor in made if others else ():
            # Or its memory would be given out again on the stream that made it, while this one still reads it.
            tensor.record_stream(current)

    def is_capturing(self) -> bool:
        """Of CUDA and its relatives; others have no graphs."""
        asked = getattr(self._module, "is_current_stream_capturing", None)
        return asked is not None and bool(asked())


def device_of(device: torch.device) -> Device | None:
    """What copies from a device; None: its memory is the host's."""
    return None if device.type == "cpu" else Accelerator(device)


@dataclass(slots=True)
class _Travelling:
    """One step's numbers on their way to the host."""

    event: Event
    packed: Tensor  # kept until the copy has been made
    host: Tensor
    rows: list[Row]
    with_norms: list[bool]
    tables: list[tuple[Row, Launched]]


class DeviceMeter:
    """Measures tensors of one device without ever making the host wait.

    Args:
        device: The accelerator's events and host buffers.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._rows: list[Row] = []
        self._with_norms: list[bool] = []
        self._counts: list[Tensor] = []  # int32, 1-d
        self._norms: list[Tensor] = []  # float32, 1-d: absmax and l2 of each tensor
        self._tables: list[tuple[Row, Launched]] = []
        self._travelling: deque[_Travelling] = deque()
        self._free: list[Tensor] = []

    def finiteness(self, values: Tensor, row: Row) -> None:
        """Launch an exact count; it is read a step later."""
        self._count([summable(values)], [row], with_norms=False)

    def norms(self, values: Sequence[Tensor], rows: Sequence[Row]) -> None:
        """Launch counts and the two norms of all tensors in few fused kernels, accumulated in fp32."""
        alike: dict[torch.dtype, list[tuple[Tensor, Row]]] = {}  # kernels are fused for one type at a time
        for tensor, row in zip(values, rows, strict=True):
            if tensor.numel():
                real = summable(tensor)
                alike.setdefault(real.dtype, []).append((real, row))
        for dtype, group in alike.items():
            order = self._count(*zip(*group, strict=True), with_norms=True)
            tensors = [group[index][0] for index in order]
            # Of halves in fp32: their norms may leave the range of their own type.
            wide = torch.float32 if dtype.itemsize < 4 else None
            both = [torch.stack(foreach_norm(tensors, kind, dtype=wide)) for kind in (math.inf, 2)]
            self._norms.append(torch.stack(both, 1).view(-1).float())

    def tables(self, values: Sequence[Tensor], rows: Sequence[Row]) -> None:
        """Launch the table of each floating-point tensor; the norms of what has none there."""
        for tensor, row in zip(values, rows, strict=True):
            launched = launch(tensor, row.tensor.numel - tensor.numel())
            if launched is None:
                self.norms([tensor], [row])
            else:
                self._device.launched()
                self._tables.append((row, launched))

    def _count(self, values: Sequence[Tensor], rows: Sequence[Row], *, with_norms: bool) -> list[int]:
        """Launch the counts of tensors; returns the order in which they are."""
        self._device.launched()
        counted = launch_counts(values)
        self._counts += counted.counts
        self._rows += [rows[index] for index in counted.order]
        self._with_norms += [with_norms] * len(values)
        return counted.order

    def close_step(self) -> None:
        """Pack everything into one copy and start it; the counts travel as the bits of float32."""
        if not (self._rows or self._tables) or self._device.is_capturing():
            return
        words = [chunk.words for _, launched in self._tables for chunk in launched.chunks]
        self._device.join([*words, *self._counts, *self._norms])
        # Words of tables first: a view of 64 bits has to begin at an even place.
        packed = torch.cat([*(each.view(torch.float32) for each in (*words, *self._counts)), *self._norms])
        host = self._buffer(packed.numel())
        event = self._device.send(packed, host[: packed.numel()])
        self._travelling.append(_Travelling(event, packed, host, self._rows, self._with_norms, self._tables))
        self._rows, self._with_norms, self._counts, self._norms, self._tables = [], [], [], [], []

    def _buffer(self, size: int) -> Tensor:
        """A free buffer that is large enough; pinning per copy would cost more than the copy."""
        for index, buffer in enumerate(self._free):
            if buffer.numel() >= size:
                return self._free.pop(index)
        return self._device.host_buffer(max(1024, 2 * size))

    def settled(self, *, wait: bool) -> list[Row]:
        """Rows of the copies whose event has passed, oldest first."""
        rows: list[Row] = []
        if not wait and self._device.is_capturing():
            return rows
        while self._travelling and self._has_arrived(self._travelling[0], wait=wait):
            arrived = self._travelling.popleft()
            _unpack(arrived)
            rows += [*arrived.rows, *(row for row, _ in arrived.tables)]
            self._free.append(arrived.host)
        return rows

    def overdue(self) -> int:
        """Give up the oldest copies beyond `MAX_PENDING`; returns the rows given up."""
        lost = 0
        while len(self._travelling) > MAX_PENDING:
            given_up = self._travelling.popleft()
            lost += len(given_up.rows) + len(given_up.tables)
        return lost

    @staticmethod
    def _has_arrived(travelling: _Travelling, *, wait: bool) -> bool:
        if wait:
            travelling.event.synchronize()
        return wait or travelling.event.query()


def _unpack(arrived: _Travelling) -> None:
    start = 0
    for row, launched in arrived.tables:
        end = start + sum(2 * chunk.words.numel() for chunk in launched.chunks)
        row.numbers = table_of(launched, arrived.host[start:end].view(torch.int64))
        start = end
    amount = start + len(arrived.rows)
    counts = numbers(arrived.host[start:amount].view(torch.int32))
    found = numbers(arrived.host[amount : arrived.packed.numel()])
    pairs = iter(zip(found[::2], found[1::2], strict=True))
    for row, count, with_norms in zip(arrived.rows, counts, arrived.with_norms, strict=True):
        absmax, l2 = next(pairs) if with_norms else (math.nan, math.nan)
        row.numbers = _device_numbers(int(count), absmax, l2=l2)


def _device_numbers(nonfinite: int, absmax: float, *, l2: float) -> Numbers:
    """Absent rather than wrong: norms of tensors with non-finite elements, and a norm that fp32 cannot hold."""
    kind = 0 if nonfinite == 0 else None
    return Numbers(
        nonfinite_count=nonfinite,
        nan_count=kind,
        inf_count=kind,
        absmax=absmax if nonfinite == 0 and math.isfinite(absmax) else None,
        l2=l2 if nonfinite == 0 and math.isfinite(l2) else None,
    )
