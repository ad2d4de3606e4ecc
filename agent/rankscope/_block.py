"""A finished group of rows on its way to a batch: columns, never one object a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Column = Sequence[int | float | str | bytes]
"""One column's values; a list within a row is flat, with its row counts in another column."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one section, as the wire wants them.

    Attributes:
        section: Name of the section (`rankscope_proto.columns.SECTIONS`).
        count: Number of rows, at least 1.
        columns: Wire field name → values, `count` long (flat fields: the sum of their count
            column). Dictionary fields are given as text. A field left out was not captured.
            `present` says which optional fields each row has, where rows differ. The producer
            does not change a column once it has handed it over.
        text_bytes: Memory of its long text, where it may have any.
    """

    section: str
    count: int
    columns: Mapping[str, Column]
    text_bytes: int = 0
