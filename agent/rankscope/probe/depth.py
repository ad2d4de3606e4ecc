"""How closely a tensor is looked at, and the name under which something may ask for more; free of torch."""

from enum import IntEnum

Key = tuple[str, int]
"""Path of a tensor and code of a `Role`; of an output and of the gradient that arrives at it, the module's path."""


class Depth(IntEnum):
    """How closely a tensor is looked at; each step has all that the one before has."""

    NONE = 0
    """Not at all."""

    FINITE = 1
    """Whether it is finite."""

    NORMS = 2
    """Its norms too."""

    TABLE = 3
    """The whole table of statistics."""

    VALUES = 4
    """Its values are handed to whoever keeps them."""
