"""Which elements of a tensor are kept, and how they leave it: bit for bit, whatever their type.

A sample needs no random numbers of torch, and is the same on every rank, in every step and on every machine:
of n elements in row-major order, element i of k is one of the stratum that begins at floor(i*n/k) and ends
before floor((i+1)*n/k). Which one is mix(seed * 0x9E3779B97F4A7C15 + i) modulo the stratum's length, where
mix is the finaliser of splitmix64, its result taken without its highest bit.
"""

import json
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from rankscope.probe.configuration import Part, Values
from rankscope.probe.torch_inner import is_fake, is_transformed, local_part

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types as wide as others, for operations that do not know the others: `take` has no 8-bit float."""

_GOLDEN = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_WITHOUT_SIGN = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Chosen:
    """Elements of a tensor that are to be kept.

    Attributes:
        source: The tensor on this rank, or the slice of it; detached.
        index: Of a sample: which elements, int64[elements], on the host.
        shape: Shape of what is kept.
        full_shape: Local shape of the tensor.
        part_of: Which elements, as JSON.
    """

    source: Tensor
    index: Tensor | None
    shape: tuple[int, ...]
    full_shape: tuple[int, ...]
    part_of: str

    @property
    def bytes(self) -> int:
        """Bytes of what is kept."""
        amount = self.source.numel() if self.index is None else self.index.numel()
        return amount * self.source.itemsize

    @property
    def dtype(self) -> str:
        """Element type, as torch names it."""
        return str(self.source.dtype).removeprefix("torch.")

    def taken(self) -> Tensor:
        """The elements, where the tensor is: of a sample a copy, else the tensor itself."""
        if self.index is None:
            return self.source
        bits = _BITS.get(self.source.itemsize)
        source = self.source if bits is None else self.source.view(bits)
        return torch.take(source, self.index.to(source.device, non_blocking=True)).view(self.source.dtype)


def chosen(tensor: Tensor, values: Values) -> Chosen | str:
    """The elements to keep of a tensor, or why there are none."""
    if tensor.is_meta or is_transformed(tensor) or is_fake(tensor):
        return "it has no values of its own (a meta, fake or transformed tensor)"
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    local, _ = local_part(tensor)
    if local.is_nested or local.is_quantized or local.layout is not torch.strided:
        kind = "nested" if local.is_nested else f"of layout {local.layout} and type {local.dtype}"
        return f"values are kept of dense tensors, and it is {kind}"
    dense = local.detach().resolve_conj().resolve_neg()
    return _part(dense, values)


def _part(dense: Tensor, values: Values) -> Chosen | str:
    shape = tuple(dense.shape)
    if values.part is Part.WHOLE:
        return Chosen(dense, None, shape, shape, "{}")
    if values.part is Part.SAMPLE:
        index = sample_index(dense.numel(), min(values.elements, dense.numel()), seed=values.seed)
        part_of = json.dumps({"elements": index.numel(), "seed": values.seed, "of": dense.numel()})
        return Chosen(dense, index, (index.numel(),), shape, part_of)
    if len(values.slices) > dense.dim():
        return f"slices name {len(values.slices)} dimensions, and it has {dense.dim()}"
    bounds = [slice(*pair).indices(size)[:2] for pair, size in zip(values.slices, shape, strict=False)]
    source = dense[tuple(slice(start, stop) for start, stop in bounds)]
    return Chosen(source, None, tuple(source.shape), shape, json.dumps({"slices": bounds}))


_REMEMBERED = 1 << 14
"""Elements of a sample up to which it is remembered: 64 of them are 8 MiB; a larger one takes 10 ns an element."""


def sample_index(amount: int, elements: int, *, seed: int) -> Tensor:
    """Which elements a sample has, ascending; see the module for the rule.

    Args:
        amount: Elements of the tensor.
        elements: Elements of the sample, at most as many.
        seed: Any whole number.

    Returns:
        int64[elements], on the host; not to be changed.
    """
    return (_remembered if elements <= _REMEMBERED else _sample)(amount, elements, seed=seed)


def _sample(amount: int, elements: int, *, seed: int) -> Tensor:
    if not elements:
        return torch.empty(0, dtype=torch.int64, device="cpu")
    places = torch.arange(elements + 1, dtype=torch.int64, device="cpu")
    bounds = places * amount // elements
    start = (seed * _GOLDEN) % 2**64
    mixed = _mixed(places[:-1] + (start - 2**64 if start >= 2**63 else start))
    return bounds[:-1] + mixed % (bounds[1:] - bounds[:-1])


_remembered = lru_cache(maxsize=64)(_sample)


def _mixed(words: Tensor) -> Tensor:
    """splitmix64's finaliser: int64 wraps as uint64 does, but for its right shift."""
    for shift, factor in _MIX:
        words = (words ^ _shifted(words, shift)) * (factor - 2**64)
    return (words ^ _shifted(words, _LAST_SHIFT)) & _WITHOUT_SIGN


def _shifted(words: Tensor, by: int) -> Tensor:
    return (words >> by) & ((1 << (64 - by)) - 1)
