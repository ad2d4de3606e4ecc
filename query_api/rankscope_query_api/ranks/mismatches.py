"""Whether ranks entered the same collective: operations and sizes beside each other, whoever told them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from rankscope_query_api.standing import InGroup

_FAMILIES = {
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "reducescatter": "all_reduce",
    "alltoall": "all_to_all",
}
"""By the beginning of an operation without its underscores. gloo makes a reduce_scatter of an all_reduce, and torch's
recorder says so, while the call says what was called."""

_EQUAL_SIZES = frozenset({"all_reduce", "all_gather", "reduce", "broadcast"})


def odd_ones(values: Mapping[int, str | int]) -> Sequence[int]:
    """The ranks that differ from most; where no value is most ranks', all of them; none: all agree."""
    counted = Counter(values.values()).most_common()
    if len(counted) < 2:
        return []
    (usual, most), (_, next_most) = counted[:2]
    return [rank for rank, value in sorted(values.items()) if most == next_most or value != usual]


def family(op: str) -> str:
    """An operation without the ways to call it."""
    bare = op.replace("_", "")
    return next((name for begin, name in _FAMILIES.items() if bare.startswith(begin)), op)


def asks_equal_sizes(op: str) -> bool:
    """Whether the inputs of an operation must be equally large on all ranks."""
    return family(op) in _EQUAL_SIZES


def elements(shape: str) -> int:
    """Elements of the shapes of an input, as 64x64;64; -1: not to be read."""
    try:
        return sum(prod(int(size) for size in one.split("x") if size) for one in shape.split(";"))
    except ValueError:
        return -1


@dataclass(frozen=True, slots=True)
class Difference:
    """What does not agree between ranks that entered a collective.

    Attributes:
        kind: The operation, or the size.
        ranks: Those that differ from most; where no value is most ranks', all of them.
        said: What each entered, for a reader; of the first eight.
    """

    kind: Literal["order_mismatch", "size_mismatch"]
    ranks: Sequence[int]
    said: str


def difference(entered: Mapping[int, InGroup]) -> Difference | None:
    """What does not agree between what ranks entered under one number; None: nothing, as far as is known."""
    ops = {rank: family(one.op) for rank, one in entered.items() if one.op}
    if odd := odd_ones(ops):
        return Difference("order_mismatch", odd, _said({rank: _call(entered[rank]) for rank in ops}))
    if not any(map(asks_equal_sizes, ops.values())):
        return None
    sizes = {rank: size for rank, one in entered.items() if one.shape and (size := elements(one.shape)) >= 0}
    if odd := odd_ones(sizes):
        return Difference("size_mismatch", odd, _said({rank: entered[rank].shape for rank in sizes}))
    return None


def _call(one: InGroup) -> str:
    return f"{one.op}({one.shape})" if one.shape else one.op


def _said(words: Mapping[int, str]) -> str:
    return "; ".join(f"rank {rank}: {word}" for rank, word in sorted(words.items())[:8])
