"""From what a hook is handed to a dense real tensor that can be measured, or to the reason why not.

Nothing here reads a value: the answer depends on type, layout and device only.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from rankscope.probe.torch_inner import is_fake, is_transformed, local_part

PLAIN = (Tensor, nn.Parameter)
"""Types that are tensors of this rank and nothing else."""

_DENSE_FLOATS = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})

_SIGNED = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
WHOLE = frozenset({torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64}) | _SIGNED
"""Types of whole numbers, which are always finite: there is something to say of them at a table or a norm only."""


class Traits(NamedTuple):
    """Type, shape and placement of a tensor, without its values.

    Attributes:
        dtype: Element type, as torch names it.
        shape: Local shape.
        placement: Placement over the mesh; "" if it is not distributed.
        numel: Elements on this rank.
        numel_global: Elements over all ranks.
    """

    dtype: str
    shape: tuple[int, ...]
    placement: str
    numel: int
    numel_global: int


class Measurable(NamedTuple):
    """A tensor ready to be measured.

    Attributes:
        values: Dense values on this rank, detached, in the tensor's own type; explicit values of a sparse tensor.
        traits: Of the tensor itself.
    """

    values: Tensor
    traits: Traits


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A tensor that is not measured, by name of what it is."""

    what: str


def measurable(tensor: Tensor) -> Measurable | Unsupported | None:
    """The measurable form of a tensor.

    Returns:
        None where there is nothing to say: fake, meta and transformed (vmap, grad) tensors have no values, though some
        look like plain ones.
    """
    if tensor.is_meta or is_transformed(tensor) or (tensor.is_cuda and torch.cuda.is_current_stream_capturing()):
        return None
    is_dense = tensor.layout is torch.strided and not tensor.is_nested  # which may be of a plain type, without a shape
    if type(tensor) in PLAIN and tensor.dtype in _DENSE_FLOATS and is_dense:
        return Measurable(tensor.detach(), _plain_traits(tensor.dtype, tensor.shape))
    if is_fake(tensor):
        return None
    local, placement = local_part(tensor)
    values = _dense(local)
    if isinstance(values, Unsupported):
        return values
    own = _plain_traits(local.dtype, local.shape)
    return Measurable(values, own._replace(placement=placement, numel_global=tensor.numel()))


@lru_cache(maxsize=4096)
def _plain_traits(dtype: torch.dtype, shape: torch.Size) -> Traits:
    numel = shape.numel()
    return Traits(str(dtype).removeprefix("torch."), tuple(shape), "", numel, numel)


def _dense(tensor: Tensor) -> Tensor | Unsupported:
    tensor = tensor.detach()
    if tensor.is_nested or tensor.is_quantized:
        return Unsupported("nested tensor" if tensor.is_nested else f"quantized tensor ({tensor.dtype})")
    if tensor.layout is torch.sparse_coo:
        # Implicit zeros change neither a norm nor the greatest magnitude nor what is finite.
        values = tensor.coalesce().values()
        return _dense(values if values.numel() else values.new_zeros(min(1, tensor.numel())))
    if tensor.layout is not torch.strided:
        return Unsupported(f"layout {tensor.layout}")
    if tensor.dtype.itemsize == 1 and "float4" in str(tensor.dtype):
        return Unsupported(f"two numbers in a byte ({tensor.dtype})")
    if not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype in WHOLE):
        return Unsupported(f"type {tensor.dtype}")
    return tensor


def summable(values: Tensor) -> Tensor:
    """In a type that sums and norms take: complex numbers as moduli, 8-bit floats as the float32 they stand for."""
    if values.is_complex():
        return values.abs()
    return values if values.dtype in _DENSE_FLOATS else values.to(torch.float32)


def tensors_of(output: object) -> Iterator[tuple[str, Tensor]]:
    """The tensors in a module's output with their index: "" for the only one, else `[1]`, `[1][0]`."""
    if isinstance(output, Tensor):
        yield "", output
        return
    for index, item in enumerate(_items(output)):
        for inner, tensor in tensors_of(item):
            yield f"[{index}]{inner}", tensor


def _items(output: object) -> Iterable[object]:
    if isinstance(output, Mapping):
        return cast("Mapping[object, object]", output).values()
    if isinstance(output, list | tuple):
        return cast("list[object] | tuple[object, ...]", output)
    if is_dataclass(output) and not isinstance(output, type):
        return [getattr(output, field.name) for field in fields(output)]
    return ()
