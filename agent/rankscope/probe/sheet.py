"""The rows of the step that is open: measured as they come, handed over when their numbers are known."""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from operator import attrgetter

import torch
from torch import Tensor

from rankscope.probe.meters import MAX_PENDING, Accelerator, DeviceMeter, HostMeter, Meter
from rankscope.probe.model_rows import gap_block
from rankscope.probe.ports import OpenStep, Recording
from rankscope.probe.rows import Columns, Row, Subject
from rankscope.probe.tensors import Measurable, Unsupported, measurable
from rankscope_proto.names import GapCause, Phase

_time_of = attrgetter("time_ns")
_FORWARD = Phase.FORWARD.code


class Depth(IntEnum):
    """How closely a tensor is looked at: not at all, whether it is finite, its norms too, or the whole table."""

    NONE = 0
    FINITE = 1
    NORMS = 2
    TABLE = 3


def meter_of(device: torch.device) -> Meter:
    """The meter for tensors of a device."""
    return HostMeter() if device.type == "cpu" else DeviceMeter(Accelerator(device))


class Sheet:
    """The rows of one watch.

    Args:
        recording: Where rows go.
        meter_for: Makes the meter of a device.

    Attributes:
        is_open: Whether a step is open; outside of one nothing is measured.
        number: Its optimizer step.
        microstep: Gradient-accumulation index inside it.
        is_nonfinite: Whether a non-finite element was seen in it.
        finite: Rows of outputs that were found finite in one look.
        measured: Rows of the open step that were measured more closely, in the order in which they were.
    """

    def __init__(self, recording: Recording, meter_for: Callable[[torch.device], Meter] = meter_of) -> None:
        self._recording = recording
        self._meter_for = meter_for
        self._columns = Columns()
        self._meters: dict[torch.device, Meter] = {}
        self._unsupported: set[tuple[str, str]] = set()
        self.wall_ns = recording.clock.wall_ns
        self.is_open = self.is_nonfinite = False
        self.number = self.microstep = 0
        self.finite: list[Row] = []
        self.measured: list[Row] = []

    def begin(self, step: OpenStep) -> None:
        """A step begins."""
        self.is_open, self.is_nonfinite = True, False
        self.number, self.microstep = step.step, step.microstep
        self.measured = []

    def end(self) -> None:
        """The step is over: hand its rows over, and start those on devices on their way."""
        for meter in self._meters.values():
            meter.close_step()
        self.settle(wait=False)
        self.is_open = False
        self.measured = []

    def measure(
        self, tensors: Iterable[tuple[Subject, Tensor]], depth: Depth, *, phase: int, flags: int = 0, call: int = 0
    ) -> list[Row]:
        """Measure tensors together, each device's in few launches.

        Args:
            tensors: What each row is about, and the tensor as it is now.
            depth: How closely to look; `NONE` looks at nothing.
            phase: Code of `names.Phase`.
            flags: Bit set of `names.TENSOR_FLAGS`.
            call: Which call of its module, of an output.

        Returns:
            A row for each tensor that has numbers, which are known at once on the host.
        """
        batches: dict[torch.device, tuple[list[Tensor], list[Row]]] = {}
        if not self.is_open or depth is Depth.NONE:
            return []
        for subject, tensor in tensors:
            prepared = self.prepared(subject, tensor)
            if prepared is not None:
                values, rows = batches.setdefault(prepared.values.device, ([], []))
                values.append(prepared.values)
                rows.append(self.row(subject, prepared, phase=phase, flags=flags, call=call))
        for device, (values, rows) in batches.items():
            self._look(self.meter(device), values, rows, depth=depth)
        made = [row for _, rows in batches.values() for row in rows]
        self.measured += made
        self.is_nonfinite |= any(row.numbers.nonfinite_count for row in made)
        return made

    @staticmethod
    def _look(meter: Meter, values: Sequence[Tensor], rows: Sequence[Row], *, depth: Depth) -> None:
        if depth is Depth.TABLE:
            meter.tables(values, rows)
        elif depth is Depth.NORMS:
            meter.norms(values, rows)
        else:
            for tensor, row in zip(values, rows, strict=True):
                meter.finiteness(tensor, row)

    def row(self, subject: Subject, tensor: Measurable, *, phase: int, flags: int = 0, call: int = 0) -> Row:
        """A row of the open step, without its numbers."""
        return Row(
            subject=subject,
            tensor=tensor.traits,
            phase=phase,
            flags=flags,
            time_ns=self.wall_ns(),
            step=self.number,
            microstep=self.microstep,
            call=call,
        )

    def prepared(self, subject: Subject, tensor: Tensor) -> Measurable | None:
        """The measurable form of a tensor; what has none is said once."""
        prepared = measurable(tensor)
        if not isinstance(prepared, Unsupported):
            return prepared
        if (subject.name, prepared.what) not in self._unsupported:
            self._unsupported.add((subject.name, prepared.what))
            self.gap(GapCause.UNSUPPORTED, f"{subject.name}: {prepared.what} is not measured")
        return None

    def meter(self, device: torch.device) -> Meter:
        """The meter of a device."""
        meter = self._meters.get(device)
        if meter is None:
            meter = self._meters[device] = self._meter_for(device)
        return meter

    def settle(self, *, wait: bool) -> None:
        """Hand over the rows whose numbers are known; `wait` for all of them (never in a step)."""
        rows, self.finite = self.finite, []
        for meter in self._meters.values():
            rows += meter.settled(wait=wait)
            overdue = meter.overdue()
            if overdue:
                self.gap(GapCause.BUDGET, f"{overdue} rows had not left the device after {MAX_PENDING} steps")
        rows.sort(key=_time_of)  # the order of rows is the order in which things ran
        self.is_nonfinite |= any(row.numbers.nonfinite_count for row in rows)
        # Apart, since the rows of a check have no norms, and norms are half of a row's bytes.
        for is_forward in (True, False):
            alike = [row for row in rows if (row.phase == _FORWARD) is is_forward]
            if alike:
                self._recording.append(self._columns.block(alike))

    def gap(self, cause: GapCause, detail: str) -> None:
        """State an absence, from now on."""
        self._recording.append(gap_block(cause, detail, time_ns=self.wall_ns()))
