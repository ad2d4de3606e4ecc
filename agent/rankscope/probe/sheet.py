"""The rows of the step that is open: measured as they come, handed over when their numbers are known."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankscope._root_error import Deliberate
from rankscope.probe.depth import Depth, Key
from rankscope.probe.finishing import Finishing
from rankscope.probe.meters import MAX_PENDING, Accelerator, DeviceMeter, HostMeter, Meter
from rankscope.probe.model_rows import gap_block
from rankscope.probe.ports import Observer, OpenStep, Recording
from rankscope.probe.rows import UNKNOWN, Columns, Row, Subject
from rankscope.probe.scaling import GRADIENTS, SCALED, SCALED_ROLES, SKIPPED, unscale
from rankscope.probe.tensors import WHOLE, Measurable, Unsupported, measurable
from rankscope_proto.names import GapCause, Phase

if TYPE_CHECKING:
    from rankscope.probe.values import Keeper

_time_of = attrgetter("time_ns")
_FORWARD = Phase.FORWARD.code


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
        observer: Looks at rows beside the recording.
        raised: What it wants to have looked at more closely in the open step.
        finishing: Gives rows what they still lack when their numbers are known.
        keeper: Shown every tensor while values are asked for; None until there is one.
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
        self.observer: Observer | None = None
        self.raised: Mapping[Key, Depth] = {}
        self.finishing = Finishing()
        self.keeper: Keeper | None = None
        self._settled: list[Row] = []

    def begin(self, step: OpenStep) -> None:
        """A step begins."""
        self.is_open, self.is_nonfinite = True, False
        self.number, self.microstep = step.step, step.microstep
        self.measured = []
        if self.finishing.scaling is not None:
            self.finishing.scaling.begin(step.step)

    def next_microstep(self) -> None:
        """A backward is over; the next is another microstep's."""
        self.microstep += 1
        if self.finishing.scaling is not None:
            self.finishing.scaling.microstep_ends()

    def end(self) -> None:
        """The step is over: hand its rows over, and start those on devices on their way."""
        if self.finishing.scaling is not None and self.is_open:
            self.finishing.scaling.end()
        for meter in self._meters.values():
            meter.close_step()
        self.settle(wait=False)
        self.is_open = False
        self.measured = []
        self._tell()

    def close(self) -> None:
        """Wait for what is still on its way, and hand it over; nothing is raised any more."""
        self.settle(wait=True)
        with suppress(Deliberate):
            self._tell()

    def depth(self, subject: Subject, least: Depth) -> Depth:
        """How closely to look at a tensor of the open step, of which the configuration wants at least `least`."""
        raised = self.raised
        return max(least, raised.get(subject.key, Depth.NONE)) if raised else least

    def measure(
        self, tensors: Iterable[tuple[Subject, Tensor]], least: Depth, *, phase: int, flags: int = 0, call: int = 0
    ) -> list[Row]:
        """Measure tensors together, each device's in few launches.

        Args:
            tensors: What each row is about, and the tensor as it is now.
            least: How closely to look, where nothing asks for more; `NONE`: not at all.
            phase: Code of `names.Phase`.
            flags: Bit set of `names.TENSOR_FLAGS`.
            call: Which call of its module, of an output.

        Returns:
            A row for each tensor that was looked at and can be measured, in the same order. Its numbers are known
            already where the tensor is on the host.
        """
        if not self.is_open or (least is Depth.NONE and not self.raised):
            return []
        batches: dict[tuple[torch.device, Depth], tuple[list[Tensor], list[Row]]] = {}
        made: list[Row] = []
        looked_at: list[Tensor] = []
        keeper = self.keeper if self.keeper is not None and self.keeper.is_asked else None
        for subject, tensor in tensors:
            if keeper is not None:
                keeper.see(subject, tensor, phase=phase, microstep=self.microstep)
            depth = self.depth(subject, least)
            is_settled = depth is Depth.NONE or (depth is Depth.FINITE and tensor.dtype in WHOLE)
            prepared = None if is_settled else self.prepared(subject, tensor)
            if prepared is not None:
                values, rows = batches.setdefault((prepared.values.device, depth), ([], []))
                values.append(prepared.values)
                rows.append(self.row(subject, prepared, phase=phase, flags=flags, call=call))
                made.append(rows[-1])
                looked_at.append(tensor)
        for (device, depth), (values, rows) in batches.items():
            self._look(self.meter(device), values, rows=rows, depth=depth)
            for tensor, row in zip(values, rows, strict=True):
                if row.loss_scale is not None and row.numbers is not UNKNOWN:
                    unscale(row, tensor)
        self.measured += made
        # Of a scaled gradient it is not known yet whether the scaler saw it, too, and left out the update.
        self.is_nonfinite |= any(row.numbers.nonfinite_count for row in made if row.loss_scale is None)
        if self.raised:
            self._show(looked_at, made)
        return made

    def call_scaled(self) -> None:
        """A scaler has shown that nothing is known of: this step's gradients are multiplied by what is not known."""
        for row in self.measured:
            if row.subject.role in GRADIENTS:
                row.flags |= SCALED

    def take(self, values: Sequence[Tensor], rows: Sequence[Row], *, depth: Depth) -> None:
        """Measure what rows of `row` are about, where that is no tensor of the model."""
        batches: dict[torch.device, tuple[list[Tensor], list[Row]]] = {}
        for tensor, row in zip(values, rows, strict=True):
            batch = batches.setdefault(tensor.device, ([], []))
            batch[0].append(tensor)
            batch[1].append(row)
        for device, (tensors, of_device) in batches.items():
            self._look(self.meter(device), tensors, rows=of_device, depth=depth)
        self.measured += rows

    def wants_values(self, subject: Subject) -> bool:
        """Whether somebody wants a tensor's values in the open step."""
        is_asked = self.keeper is not None and subject.key in self.keeper.asked
        return is_asked or self.raised.get(subject.key) is Depth.VALUES

    def keep(self, tensors: Sequence[Tensor], rows: Sequence[Row]) -> None:
        """Show what `take` was told of to those who want its values."""
        for tensor, row in zip(tensors, rows, strict=True):
            if self.keeper is not None and self.keeper.is_asked:
                self.keeper.see(row.subject, tensor, phase=row.phase, microstep=row.microstep)
        if self.raised:
            self._show(tensors, rows)

    @staticmethod
    def _look(meter: Meter, values: Sequence[Tensor], *, rows: Sequence[Row], depth: Depth) -> None:
        if depth >= Depth.TABLE:
            meter.tables(values, rows)
        elif depth is Depth.NORMS:
            meter.norms(values, rows)
        else:
            for tensor, row in zip(values, rows, strict=True):
                meter.finiteness(tensor, row)

    def _show(self, tensors: Sequence[Tensor], rows: Sequence[Row]) -> None:
        """Show the observer the tensors whose values it wants, or that it judges before training goes on."""
        observer = self.observer
        if observer is None:
            return
        for tensor, row in zip(tensors, rows, strict=True):
            wanted = self.raised.get(row.subject.key)
            if wanted is None:
                continue
            is_precise = observer.precise(row.subject.key)
            prepared = None if tensor.is_cpu or not is_precise else self.prepared(row.subject, tensor)
            if prepared is not None:
                self._look(HostMeter(), [prepared.values.cpu()], rows=[row], depth=wanted)
            if is_precise or wanted is Depth.VALUES:
                observer.measured(row, tensor)

    def _tell(self) -> None:
        """Tell the observer of the rows that have settled since the last step ended."""
        rows, self._settled = self._settled, []
        if self.observer is not None:
            self.observer.settled(rows)

    def row(self, subject: Subject, tensor: Measurable, *, phase: int, flags: int = 0, call: int = 0) -> Row:
        """A row of the open step, without its numbers."""
        scaling = self.finishing.scaling
        return Row(
            subject=subject,
            tensor=tensor.traits,
            phase=phase,
            flags=flags,
            time_ns=self.wall_ns(),
            step=self.number,
            microstep=self.microstep,
            call=call,
            loss_scale=None if scaling is None or subject.role not in SCALED_ROLES else scaling.live(),
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
        rows = self.finishing.finished([row for row in rows if not row.is_void], wait=wait)
        rows.sort(key=_time_of)  # the order of rows is the order in which things ran
        self.is_nonfinite |= any(row.numbers.nonfinite_count for row in rows if not row.flags & SKIPPED)
        # Apart, since the rows of a check have no norms, and norms are half of a row's bytes.
        for is_forward in (True, False):
            alike = [row for row in rows if (row.phase == _FORWARD) is is_forward]
            if alike:
                self._recording.append(self._columns.block(alike))
        if self.observer is not None:
            self._settled += rows

    def gap(self, cause: GapCause, detail: str) -> None:
        """State an absence, from now on."""
        self._recording.append(gap_block(cause, detail, time_ns=self.wall_ns()))
