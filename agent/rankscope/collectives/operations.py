"""The functions of `torch.distributed` that are wrapped, and where each has the arguments that a row tells of."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

Function = Callable[..., Any]

INPUTS: Mapping[str, str] = {
    "all_reduce": "tensor",
    "all_reduce_coalesced": "tensors",
    "reduce": "tensor",
    "broadcast": "tensor",
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "all_gather_single": "input_tensor",
    "all_gather_coalesced": "input_tensor_list",
    "reduce_scatter": "input_list",
    "reduce_scatter_tensor": "input",
    "reduce_scatter_single": "input",
    "all_to_all": "input_tensor_list",
    "all_to_all_single": "input",
    "gather": "tensor",
    "scatter": "tensor",
    "barrier": "",
    "monitored_barrier": "",
    "send": "tensor",
    "recv": "tensor",
    "batch_isend_irecv": "p2p_op_list",
}
"""Each function, and its parameter with this rank's input; `scatter`'s is the piece that the rank gets.

`isend` and `irecv` are left alone: `P2POp` compares them by identity, and refuses a wrapper of them.
"""

UNNUMBERED = frozenset({"send", "recv", "batch_isend_irecv"})
"""Those between two ranks, which have no number that is the same on all ranks."""

BARRIER_NUMBERS = 2
"""Numbers that gloo's `monitored_barrier` takes on every rank (measured with 3 ranks); rank 0's calls take more."""

_NOWHERE = 1_000
"""A place that no call has: the function has no such parameter."""


class Operation(NamedTuple):
    """One function.

    Attributes:
        name: As torch names it.
        input: Parameter with the input; "" where it has none.
        input_at: Its place, 0-based, likewise of the others.
        group_at: Of the process group.
        async_at: Of `async_op`.
        reduction_at: Of the reduction.
        is_numbered: Whether its number is the same on all ranks.
        is_batch: Whether its input is a list of `P2POp`.
        least: Arguments of a call that says neither how it reduces nor whether it waits.
    """

    name: str
    input: str
    input_at: int
    group_at: int
    async_at: int
    reduction_at: int
    is_numbered: bool
    is_batch: bool
    least: int

    def manner(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bool, Any]:
        """Whether a call's caller does not wait, and how it reduces; None where it does not say."""
        count, at, how = len(args), self.async_at, self.reduction_at
        is_async = self.is_batch or bool(args[at] if count > at else kwargs.get("async_op"))
        return is_async, args[how] if count > how else kwargs.get("op")


def operation_of(name: str, function: Function) -> Operation:
    """Where the arguments of a function are.

    Raises:
        TypeError, ValueError: it has no signature.
    """
    names = list(inspect.signature(function).parameters)

    def at(parameter: str) -> int:
        return names.index(parameter) if parameter in names else _NOWHERE

    given = INPUTS[name]
    is_batch = name == "batch_isend_irecv"
    return Operation(
        name,
        given,
        at(given),
        at("group"),
        at("async_op"),
        at("op"),
        name not in UNNUMBERED,
        is_batch,
        -1 if is_batch else min(at("async_op"), at("op")),
    )


def reduction_text(op: str, given: object) -> str:
    """How a collective reduces, as a row has it: sum, avg, max; "" where nothing is reduced."""
    if "reduce" not in op:
        return ""
    return "sum" if given is None else _said(str(cast("Any", given)))


@lru_cache
def _said(text: str) -> str:
    return text.rpartition(".")[2].strip("<>: 0123456789").lower()
