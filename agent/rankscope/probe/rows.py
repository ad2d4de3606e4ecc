"""Rows of the section `tensor_stats` on their way from a hook to a block of columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rankscope._block import Block, Column
from rankscope.probe.tensors import Traits
from rankscope_proto.columns import SECTION_BY_NAME

_FIELDS = {field.name: field for field in SECTION_BY_NAME["tensor_stats"].fields}


def _bit(name: str) -> int:
    optional = _FIELDS[name].optional
    return 0 if optional is None else 1 << optional


_STEP, _LAYER_INDEX = _bit("step"), _bit("layer_index")
_NONFINITE, _NAN, _INF = _bit("nonfinite_count"), _bit("nan_count"), _bit("inf_count")
_ABSMAX, _L2 = _bit("absmax"), _bit("l2")


class Numbers(NamedTuple):
    """The statistics of one tensor; None is one that was not captured or does not exist.

    Attributes:
        nonfinite: NaN and infinite elements.
        nan: NaN elements.
        inf: Infinite elements.
        absmax: Greatest magnitude of a finite element.
        l2: Root of the sum of squares of the finite elements.
    """

    nonfinite: int | None = None
    nan: int | None = None
    inf: int | None = None
    absmax: float | None = None
    l2: float | None = None


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

    def at(self, index: str) -> "Subject":
        """The output with that index of the module whose output this is."""
        return replace(self, name=self.name + index)


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
    """

    subject: Subject
    tensor: Traits
    phase: int
    flags: int
    time_ns: int
    step: int
    microstep: int
    numbers: Numbers = UNKNOWN


class Columns:
    """Makes blocks of rows, and keeps the columns that say the same of the same tensors in every step."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[list[tuple[Subject, Traits, int]], dict[str, Column]]] = {}

    def block(self, rows: Sequence[Row]) -> Block:
        """The rows as columns; norms are left out where no row has one, since they are half of a row's bytes."""
        columns: dict[str, Column] = {
            **self._constant(rows),
            "step": [row.step for row in rows],
            "microstep": [row.microstep for row in rows],
            "time": [row.time_ns for row in rows],
            "flags": [row.flags for row in rows],
            "nonfinite_count": [row.numbers.nonfinite or 0 for row in rows],
            "nan_count": [row.numbers.nan or 0 for row in rows],
            "inf_count": [row.numbers.inf or 0 for row in rows],
            "present": [_present(row) for row in rows],
        }
        if any(row.numbers.l2 is not None or row.numbers.absmax is not None for row in rows):
            columns["absmax"] = [row.numbers.absmax or 0.0 for row in rows]
            columns["l2"] = [row.numbers.l2 or 0.0 for row in rows]
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


def _present(row: Row) -> int:
    numbers = row.numbers
    return (
        _STEP
        | (0 if row.subject.layer_index is None else _LAYER_INDEX)
        | (0 if numbers.nonfinite is None else _NONFINITE)
        | (0 if numbers.nan is None else _NAN)
        | (0 if numbers.inf is None else _INF)
        | (0 if numbers.absmax is None else _ABSMAX)
        | (0 if numbers.l2 is None else _L2)
    )
