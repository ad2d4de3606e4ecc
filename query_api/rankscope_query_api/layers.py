"""Which layer a module belongs to: the nearest numbered block around it; pure functions over rows of `modules`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope_query_api.values import Record


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
    name = row["path"].rpartition(".")[2]
    # No expression: on a long name of zeros it looked from each of them at all others.
    digits = name[len(name.rstrip("0123456789")) :]
    is_numbered = (digits.lstrip("0") or digits[:1]) == str(row["layer_index"])
    return is_numbered and indexes.get(row["parent"]) != row["layer_index"]
