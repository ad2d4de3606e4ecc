"""The checked tree: every name resolved to a column, every literal to a value in range, nothing left to fail.

It is what both executions start from, the compiler to SQL and the agent's evaluator, so that
the two cannot disagree about what a query means.
"""

from dataclasses import dataclass

from rankscope.tql.fields import Entity, Field
from rankscope.tql.typed import Constant, Key

Operand = Field | Key
"""What a row is asked for."""


@dataclass(frozen=True, slots=True)
class Compare:
    """False where a side is missing or NaN, whatever the operator."""

    operator: str
    left: Operand
    right: Operand | Constant


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether the operand equals one of the constants; false where it is missing."""

    operand: Operand
    choices: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """Whether low <= operand <= high; false where it is missing or NaN."""

    operand: Operand
    low: Constant
    high: Constant


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether the row has it."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class FloatTest:
    """One of isnan, isinf, isfinite; false where the operand is missing."""

    question: str
    operand: Operand


@dataclass(frozen=True, slots=True)
class Opposite:
    """True where the operand is false: also where that was for want of a value."""

    operand: "Condition"


@dataclass(frozen=True, slots=True)
class AllOf:
    """True if all are; of none, true."""

    operands: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True if one is."""

    operands: tuple["Condition", ...]


Condition = Compare | OneOf | Between | Exists | FloatTest | Opposite | AllOf | AnyOf
"""True or false of one row, never unknown."""


@dataclass(frozen=True, slots=True)
class Companion:
    """Rows of another entity, of the same run, launch, rank and step, of which one must fulfil the condition."""

    entity: Entity
    condition: Condition


@dataclass(frozen=True, slots=True)
class Count:
    """The number of rows, as something to order groups by."""


@dataclass(frozen=True, slots=True)
class Ordering:
    """What to order by; missing values and NaN come last either way."""

    operand: Operand | Count
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """A query that can be executed.

    Attributes:
        entity: What the rows are, or what is counted.
        condition: Which rows.
        companion: A semi-join with the other entity, if the query names two.
        group: Fields to count by; None: the query returns rows, not counts.
        select: Fields to return; None: all that the entity has.
        order: What to order by, before the total order that always follows.
        backwards: Whether to read from the end of the order (`last`).
        limit: Most rows or groups to return over all pages; None: no limit.
    """

    entity: Entity
    condition: Condition
    companion: Companion | None = None
    group: tuple[Operand, ...] | None = None
    select: tuple[Operand, ...] | None = None
    order: tuple[Ordering, ...] = ()
    backwards: bool = False
    limit: int | None = None
