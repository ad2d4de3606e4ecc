"""How far an optimizer moved each weight: a sample taken before its step and again after it.

The sample is of rows of 16 neighbouring elements (a cache line of float32: 12 µs for 1 % of 4 M elements,
where single elements cost 71 µs), at most 1 % of the elements but at least 256; a tensor that has no more
is taken whole. Which ones is chosen once per tensor, by its name, from a generator of its own: the same on
every rank and in every run. On request the whole difference is kept instead, with the whole table, at the
price of a copy of the weights during the optimizer's step; and so is that of one tensor whose values somebody wants.

An update that is left out (a guarded step, a scaler that saw an overflow) has no row.
"""

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from torch import Tensor
from torch.optim import Optimizer

from rankscope.probe.depth import Depth
from rankscope.probe.parameters import Tracked
from rankscope.probe.sheet import Sheet
from rankscope.probe.torch_inner import norms64, ratios, sample, subtract
from rankscope_proto.names import TENSOR_FLAGS, Phase, Role

if TYPE_CHECKING:
    from rankscope.probe.tensors import Measurable

LEAST = 256
"""Elements that a sample has at least."""

SHARE = 100
"""A sample has at most every 100th element."""

_ROW = 16
_SAMPLED = TENSOR_FLAGS["sampled"]
_OPTIMIZER, _UPDATE = Phase.OPTIMIZER.code, Role.UPDATE.code


class _Before(NamedTuple):
    """A parameter that an optimizer is about to move.

    Attributes:
        tracked: The parameter.
        prepared: The tensor that it moves.
        part: The elements to compare, as they are before.
        is_all: Whether these are all of them, in their shape.
    """

    tracked: Tracked
    prepared: "Measurable"
    part: Tensor
    is_all: bool


class Updates:
    """Measures the updates of one watch's parameters.

    Args:
        sheet: Takes the rows.

    Attributes:
        is_whole: Whether the whole difference is kept.
    """

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self.is_whole = False
        self._chosen: dict[tuple[str, int], Tensor] = {}
        self._before: dict[Optimizer, list[_Before]] = {}

    def begin(self, optimizer: Optimizer, tracked: Iterable[Tracked]) -> None:
        """An optimizer is about to move its parameters.

        Args:
            optimizer: Which one.
            tracked: The parameters to look at; those that are not this optimizer's are left out.
        """
        moved = {id(parameter) for parameter in parameters_of(optimizer)}
        before: list[_Before] = []
        for each in tracked:
            prepared = self._sheet.prepared(each.weight, each.parameter) if id(each.parameter) in moved else None
            if prepared is not None and prepared.values.numel():
                is_all = self.is_whole or self._sheet.wants_values(each.weight.of(_UPDATE))
                part = self._part(each.weight.name, prepared.values, is_all=is_all)
                kept = part.clone() if part.data_ptr() == prepared.values.data_ptr() else part
                before.append(_Before(each, prepared, kept, is_all))
        self._before[optimizer] = before
        if before and self._sheet.finishing.scaling is not None:
            self._sheet.finishing.scaling.live()

    def end(self, optimizer: Optimizer) -> None:
        """It has moved them: write how far."""
        before = self._before.pop(optimizer, [])
        if not before:
            return
        moves = [each.part for each in before]
        weights = [] if self.is_whole else norms64(moves)
        for each in before:  # one by one and in place: a second sample of all weights would be 1 % of their memory
            subtract(self._part(each.tracked.weight.name, each.prepared.values, is_all=each.is_all), each.part)
        values = moves if self.is_whole else ratios(norms64(moves), weights)
        rows = [
            self._sheet.row(each.tracked.weight.of(_UPDATE), each.prepared, phase=_OPTIMIZER, flags=_flags(each))
            for each in before
        ]
        self._sheet.take(values, rows, depth=Depth.TABLE if self.is_whole else Depth.NORMS)
        whole = [place for place, each in enumerate(before) if each.is_all]
        self._sheet.keep([moves[place] for place in whole], [rows[place] for place in whole])

    def forget(self) -> None:
        """The step is over; an optimizer that raised has no rows."""
        self._before.clear()

    def _part(self, name: str, values: Tensor, *, is_all: bool) -> Tensor:
        """The elements to compare, in float32 at least; all of them in their shape, or a sample in one dimension.

        Raises:
            RuntimeError: Torch cannot index the tensor.
        """
        part = values
        if not is_all and values.numel() > LEAST:
            flat = flattened(values)
            part = flat[: flat.numel() // _ROW * _ROW].view(-1, _ROW).index_select(0, self._rows(name, flat)).view(-1)
        return part if part.itemsize >= 4 else part.float()

    def _rows(self, name: str, flat: Tensor) -> Tensor:
        """Numbers of the rows that are looked at, ascending."""
        key = (name, flat.numel())
        chosen = self._chosen.get(key)
        if chosen is None or chosen.device != flat.device:
            chosen = self._chosen[key] = chosen_rows(name, flat.numel()).to(flat.device)
        return chosen


def _flags(before: _Before) -> int:
    return 0 if before.is_all or before.prepared.values.numel() <= LEAST else _SAMPLED


def chosen_rows(name: str, numel: int) -> Tensor:
    """Numbers of the rows of 16 elements that a tensor's sample has.

    Args:
        name: Its path; the choice depends on it and on `numel` alone.
        numel: Its elements, more than `LEAST`.

    Returns:
        int64[m], ascending, without repetition; 16 * m elements.
    """
    amount = max(LEAST // _ROW, numel // SHARE // _ROW)
    return sample(amount, numel // _ROW, seed=zlib.crc32(name.encode()))


def flattened(values: Tensor) -> Tensor:
    """All elements in one dimension: a view, in the order of memory, wherever they lie without gaps."""
    if values.is_contiguous():
        return values.view(-1)
    by_stride = sorted(range(values.dim()), key=values.stride, reverse=True)
    packed = values.permute(by_stride)
    return packed.view(-1) if packed.is_contiguous() else values.reshape(-1)


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The parameters that an optimizer moves."""
    groups = cast("list[dict[str, list[Tensor]]]", optimizer.param_groups)
    return [parameter for group in groups for parameter in group["params"]]
