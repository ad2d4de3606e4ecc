"""Rows of the section `tensor_stats` on their way from a hook to a block of columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rankscope._block import Block, Column
from rankscope.probe.depth import Key
from rankscope.probe.tensors import Traits
from rankscope_proto.columns import SECTION_BY_NAME
from rankscope_proto.names import Role

_SECTION = SECTION_BY_NAME["tensor_stats"]


def _bit(name: str) -> int:
    optional = _SECTION.field(name).optional
    return 0 if optional is None else 1 << optional


OUTPUT_ROLES = (Role.ACTIVATION.code, Role.ACTIVATION_GRAD.code)
"""Codes of the roles of a module's outputs and of the gradients that arrive at them."""


class Numbers(NamedTuple):
    """The statistics of one tensor, over its finite elements; None is one that was not captured or does not exist.

    The names are those of the section `tensor_stats`, which says what each means.
    """

    nonfinite_count: int | None = None
    nan_count: int | None = None
    inf_count: int | None = None
    absmax: float | None = None
    l2: float | None = None
    posinf_count: int | None = None
    neginf_count: int | None = None
    zero_count: int | None = None
    zero_frac: float | None = None
    min: float | None = None
    max: float | None = None
    absmin_nonzero: float | None = None
    mean: float | None = None
    std: float | None = None
    l1: float | None = None
    rms: float | None = None
    subnormal_count: int | None = None
    saturated_count: int | None = None
    update_ratio: float | None = None
    grad_to_weight: float | None = None
    fingerprint: int | None = None
    loss_scale: float | None = None
    log2_hist: tuple[int, ...] = ()


_STATISTICS = tuple((name, _bit(name)) for name in Numbers._fields if name != "log2_hist")
_STEP, _LAYER_INDEX = _bit("step"), _bit("layer_index")


UNKNOWN = Numbers()
"""Nothing is known: the tensor is empty, or its numbers have not arrived yet."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a row is about.

    Attributes:
        name: Path of the tensor; of an output, its module's path and index.
        module: Path of the module it belongs to.
        layer_index: Number of the nearest enclosing repeated block, if any.
        layer_type: Semantic type of the nearest enclosing layer.
        role: Code of `names.Role`.
    """

    name: str
    module: str
    layer_index: int | None
    layer_type: str
    role: int

    @property
    def key(self) -> Key:
        """What something that asks for more about it names: an output's index is no part of it."""
        is_indexed = self.role in OUTPUT_ROLES and self.name.startswith(f"{self.module}[")
        return self.module if is_indexed else self.name, self.role

    def at(self, index: str) -> "Subject":
        """The output with that index of the module whose output this is."""
        return replace(self, name=self.name + index)

    def of(self, role: int) -> "Subject":
        """The same tensor's row of another role."""
        return replace(self, role=role)


@dataclass(slots=True)
class LossScale:
    """What a loss was multiplied with, as it was read at one moment.

    Attributes:
        step: Optimizer step.
        time_ns: Wall clock when it was read.
        value: The scale; None: not known yet, or never.
        is_judged: Whether all that will be known of it is.
        is_applied: Whether an optimizer's update followed.
        is_skipped: Whether the scaler left out the update that was to follow.
    """

    step: int
    time_ns: int
    value: float | None = None
    is_judged: bool = False
    is_applied: bool = False
    is_skipped: bool = False


@dataclass(slots=True)
class Row:
    """One row; all but the numbers are known when it is made.

    Attributes:
        subject: What it is about.
        tensor: Type, shape and placement; its values are not kept.
        phase: Code of `names.Phase`.
        flags: Bit set of `names.TENSOR_FLAGS`.
        time_ns: Wall clock when the reduction was launched.
        step: Optimizer step.
        microstep: Gradient-accumulation index inside it.
        numbers: The statistics.
        call: Which call of its module inside the microstep, from 0.
        loss_scale: What a gradient is multiplied with, where a scaler is known.
        is_void: Whether a later one has taken its place, so that it never leaves.
    """

    subject: Subject
    tensor: Traits
    phase: int
    flags: int
    time_ns: int
    step: int
    microstep: int
    numbers: Numbers = UNKNOWN
    call: int = 0
    loss_scale: LossScale | None = None
    is_void: bool = False


class Columns:
    """Makes blocks of rows, and keeps the columns that say the same of the same tensors in every step."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[list[tuple[Subject, Traits, int]], dict[str, Column]]] = {}

    def block(self, rows: Sequence[Row]) -> Block:
        """The rows as columns; a statistic that no row has is left out, since most rows have few of them."""
        present = [_STEP if row.subject.layer_index is None else _STEP | _LAYER_INDEX for row in rows]
        columns: dict[str, Column] = {
            **self._constant(rows),
            "step": [row.step for row in rows],
            "microstep": [row.microstep for row in rows],
            "time": [row.time_ns for row in rows],
            "flags": [row.flags for row in rows],
            **_statistics([row.numbers for row in rows], present),
            "present": present,
        }
        if any(row.call for row in rows):
            columns["call"] = [row.call for row in rows]
        return Block("tensor_stats", len(rows), columns)

    def _constant(self, rows: Sequence[Row]) -> dict[str, Column]:
        """Columns of subjects and traits, made once per sequence of tensors; two such sequences per step recur."""
        key = [(row.subject, row.tensor, row.phase) for row in rows]
        phase = rows[0].phase
        known = self._of.get(phase)
        if known is not None and known[0] == key:
            return known[1]
        columns: dict[str, Column] = {
            "name": [row.subject.name for row in rows],
            "module": [row.subject.module for row in rows],
            "layer_index": [row.subject.layer_index or 0 for row in rows],
            "layer_type": [row.subject.layer_type for row in rows],
            "role": [row.subject.role for row in rows],
            "dtype": [row.tensor.dtype for row in rows],
            "shape": [size for row in rows for size in row.tensor.shape],
            "shape_n": [len(row.tensor.shape) for row in rows],
            "placement": [row.tensor.placement for row in rows],
            "numel_local": [row.tensor.numel for row in rows],
            "numel_global": [row.tensor.numel_global for row in rows],
            "phase": [row.phase for row in rows],
        }
        self._of[phase] = (key, columns)
        return columns


def _statistics(numbers: Sequence[Numbers], present: list[int]) -> dict[str, Column]:
    """Columns of the statistics that any row has; sets the bits of `present` where a row has one."""
    *values, histograms = zip(*numbers, strict=True)
    columns: dict[str, Column] = {}
    for (name, bit), column in zip(_STATISTICS, values, strict=True):
        missing = column.count(None)
        if missing == len(column):
            continue
        if missing:
            present[:] = [mask if value is None else mask | bit for mask, value in zip(present, column, strict=True)]
            columns[name] = [value or 0 for value in column]
        else:
            present[:] = [mask | bit for mask in present]
            columns[name] = column
    if any(histograms):
        columns["log2_hist"] = [amount for histogram in histograms for amount in histogram]
        columns["log2_hist_n"] = [len(histogram) for histogram in histograms]
    return columns
