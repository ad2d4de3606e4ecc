"""Which layer a module belongs to: the nearest numbered block around it; pure functions over rows of `modules`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_query_api.values import Record

NUMBER_AT_END = "0*([0-9]+)$"
"""Finds the number that a name ends in, without leading zeros; means the same in RE2, for TQL's `layer.path`."""

_NUMBER = re.compile(NUMBER_AT_END)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: a repeated block, or a module that lies in none.

    Attributes:
        path: Its path.
        index: Its number; None: it is no block.
        type: Its semantic type.
    """

    path: str
    index: int | None
    type: str


class Layers:
    """The layers of a model.

    Args:
        modules: Its modules, in its order.
    """

    def __init__(self, modules: Sequence[Record]) -> None:
        self._place = {row["path"]: at for at, row in reversed(list(enumerate(modules)))}
        self._types = {row["path"]: row["type"] for row in modules}
        indexes = {row["path"]: row["layer_index"] for row in modules}
        self._blocks = {row["path"]: row["layer_index"] for row in modules if is_block(row, indexes)}

    def of(self, module: str) -> Layer:
        """The layer that a module is in, or is."""
        above = module
        while above:
            if above in self._blocks:
                return Layer(above, self._blocks[above], self._types[above])
            above = above.rpartition(".")[0]
        return Layer(module, None, self._types.get(module, ""))

    def place(self, layer: Layer) -> tuple[int, str]:
        """Where a layer stands in the model; what the model does not have comes last."""
        return self._place.get(layer.path, len(self._place)), layer.path


def is_block(row: Record, indexes: Mapping[str, int | None]) -> bool:
    """Whether a module is a numbered block: its name ends in its index, and its parent has another.

    `tql_sql.relations` says the same in SQL.
    """
    number = _NUMBER.search(row["path"].rpartition(".")[2])
    index = row["layer_index"]
    is_numbered = index is not None and number is not None and number[1] == str(index)
    return is_numbered and indexes.get(row["parent"]) != index
