"""The typed tree: names resolved to fields, literals to values in range, every type known, nothing left to fail.

Both executions start from it, the compiler to SQL and the agent's evaluator, so that the two
cannot disagree about what a query means. What each node means, with missing values, NaN and
overflow, is said here and nowhere else.
"""

from dataclasses import dataclass
from typing import Literal

from rankscope.tql.fields import Entity, Field, Type
from rankscope.tql.words import Comparator, Function, Operator, Question, RelationOperator, SetOperator


@dataclass(frozen=True, slots=True)
class Constant:
    """A value: integers for durations (ns), sizes (bytes), times (ns since epoch) and codes; hex digits for ids.

    Beside a field of 32-bit floats it is rounded to 32 bits, so that 0.1 equals a stored 0.1; in arithmetic it is not.

    Attributes:
        value: The value itself, already within the range of what it is compared with.
        type: What it is.
        table: ClickHouse type to bind it as.
    """

    value: bool | int | float | str
    type: Type
    table: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a map: an attribute, a metric, a setting of the run, a mesh coordinate.

    Attributes:
        scope: `attr`, `metric`, `run.config` or `mesh`.
        key: The key, any text.
        type: STRING: the text under it; FLOAT: the number under it; ATTRIBUTE: either; INTEGER: a coordinate. A true
            label is kept as the text "true". As text, an attribute that is a number is the number's text.
    """

    scope: str
    key: str
    type: Type


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`+ - * / %` of two values; missing where a side is missing, the divisor is zero, or the result overflows.

    Integers, durations, sizes and times are whole numbers: two of them give, exactly, one within signed 64 bits or
    nothing. A float beside them, and `/` of two of them, makes both sides floats of 64 bits; where the result's type is
    DURATION, SIZE or TIME, it is rounded to a whole number, halves to even. A float result that is infinite of finite
    operands overflowed. `%` has the sign of the left side. NaN stays NaN.
    """

    operator: Operator
    left: "Value"
    right: "Value"
    type: Type


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of one row's values: abs, min, max, sqrt, log2, log10, ratio, coalesce.

    All but coalesce are missing where an argument is missing. `sqrt` of a negative number and a logarithm of zero or
    less are missing; `ratio(a, b)` is `a / b`; `coalesce` is its first argument that is there, be it NaN. `abs` of the
    least integer overflows. `min` and `max` of NaN and a number are NaN; an integer among floats is read as a float.
    """

    function: Function
    arguments: tuple["Value", ...]
    type: Type


@dataclass(frozen=True, slots=True)
class History:
    """A value beside the earlier ones of its series: prev, delta, ema, robust_z.

    A series is the rows of one process (incarnation) with the same `Entity` and series key (`series.SERIES`), in TQL's
    total order. It is made of all stored rows, whatever the query keeps. Rows in which the value is missing or NaN are
    passed over. `prev`: the last earlier value; `delta`: the value less that; `ema(x, n)`: the exponential mean of
    finite values up to and including this row, with alpha = 2 / (n + 1), begun at the first one; `robust_z(x, n)`:
    (x - median) / (1.4826 * MAD) over the up to n earlier values, missing with fewer than 8 or a MAD of 0.
    Without an earlier value prev, delta and robust_z are missing.

    Attributes:
        value: What it looks back on: of fields and keys that the row itself holds.
        count: n: of `ema` 1 to 10,000, of `robust_z` 8 to 64; 0 of the others.
    """

    function: Literal["prev", "delta", "ema", "robust_z"]
    value: "Value"
    type: Type
    count: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """A column that an earlier stage made: selected, grouped by, an aggregate, a comparison, a stretch of `every`.

    Of a column of type LIST, an Output of type INTEGER is the list's length. A column of attributes is text.
    """

    name: str
    type: Type


Value = Constant | Field | Key | Arithmetic | Apply | History | Output
"""What a row is asked for; it may be missing."""


@dataclass(frozen=True, slots=True)
class Compare:
    """False where a side is missing or NaN, whatever the operator. An integer and a float compare exactly."""

    operator: Comparator
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether the value equals one of the constants; false where it is missing or NaN."""

    value: Value
    choices: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """Whether low <= value <= high; false where one of the three is missing or NaN."""

    value: Value
    low: Value
    high: Value


@dataclass(frozen=True, slots=True)
class Matches:
    """Whether the whole of a text matches (or, opposite, does not match) a pattern; false where it is missing.

    Attributes:
        pattern: In the common subset of RE2 and Python's `re`, without anchors of its own; `.` matches a newline,
            classes are ASCII.
    """

    value: Value
    pattern: str
    is_opposite: bool = False


@dataclass(frozen=True, slots=True)
class Contains:
    """Whether a text has a part, or a list an item; false where a side is missing. Every text has the empty part."""

    value: Value
    part: Value


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether the row has it; a NaN is there, an empty list is not."""

    value: Value


@dataclass(frozen=True, slots=True)
class FloatTest:
    """One of isnan, isinf, isfinite; false where the value is missing."""

    question: Question
    value: Value


@dataclass(frozen=True, slots=True)
class Truth:
    """Whether a boolean value is there and true."""

    value: Value


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


Condition = Compare | OneOf | Between | Matches | Contains | Exists | FloatTest | Truth | Opposite | AllOf | AnyOf
"""True or false of one row, never unknown."""


@dataclass(frozen=True, slots=True)
class Companion:
    """Rows of another entity, of the same run, launch, rank and step, of which one must fulfil the condition."""

    entity: Entity
    condition: Condition


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an entity of which a condition is true, and that match each companion (a semi-join)."""

    entity: Entity
    condition: Condition
    companions: tuple[Companion, ...] = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """A structural operator and what stands right of it.

    Attributes:
        operator: `>` child, `>>` descendant, `<` parent, `<<` ancestor, `~` sibling, and `!>` `!>>`: of no such span.
    """

    operator: RelationOperator
    condition: Condition


@dataclass(frozen=True, slots=True)
class Related:
    """Spans by their relatives in the same trace: `A >> B` is the spans of B below one of A, read from the left."""

    first: Condition
    relations: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class Traces:
    """Traces with a span of each (`and`), of one (`or`), of the one and none of the other (`without`), from the left.

    The rows are traces (`Entity.TRACE`).
    """

    first: Condition
    relations: tuple[tuple[SetOperator, Condition], ...] = ()


Source = Rows | Related | Traces
"""Where rows come from before the first stage."""


@dataclass(frozen=True, slots=True)
class Column:
    """A value of an answer under its name: as the formatter writes it."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows of which it is true. Filters that lead are in the source's condition instead."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Select:
    """These columns only."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Reduced:
    """One number of many rows.

    Aggregates pass over rows in which their value is missing, and float ones over NaN; of no value they are missing,
    except count (0), sum (0) and distinct (0). `sum` of integers that overflows 64 bits is missing. `stddev` is of the
    population. Percentiles interpolate linearly between the two nearest values. `first` and `last` follow TQL's total
    order. `rate` is rows a second between the first and the last row's time, missing where that is 0. `histogram(x, n)`
    is n counts of equal stretches from the least to the greatest finite value.

    Across: `spread` (max - min) / |median|, missing where the median is 0; `skew` max - min; `zscore` the greatest
    |x - mean| / stddev over ranks and `outliers(x, k)` the ranks with a robust z beyond ±k; `slowest` the rank with
    the greatest value (the lowest such rank); `agree` whether all are bitwise equal; `count_ranks`; `missing_ranks`
    the ranks below the world size without a row; `slope` of the value per layer index by least squares; `median`.
    Several rows of one rank in a group are first reduced to their greatest value.

    Attributes:
        name: The output's name: the function's, or the whole call where two are of one function.
        function: Which.
        arguments: Its values; none for count, rate, count_ranks, missing_ranks.
        parameter: The quantile of `quantile`, n of `histogram`, k of `outliers`, 3 unless said.
        type: Of the output.
    """

    name: str
    function: str
    arguments: tuple[Value, ...]
    type: Type
    parameter: float | None = None


@dataclass(frozen=True, slots=True)
class Every:
    """Groups of stretches: of steps, or of time in ns, counted from 0.

    Rows without a step (or time) are a group of their own, whose start is missing. The output is named `step` or
    `time`: the stretch's first step, or first ns since the epoch.
    """

    size: int
    in_steps: bool


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Reduce the rows of each group; a missing value is a group of its own."""

    reduced: tuple[Reduced, ...]
    by: tuple[Column, ...] = ()
    every: Every | None = None


@dataclass(frozen=True, slots=True)
class Across:
    """Compare a value over the ranks, layers or mesh coordinates of each group.

    Attributes:
        axis: `rank`, `layer` or `mesh.<axis>`.
        reduced: Which comparison, of what.
        by: The groups.
    """

    axis: str
    reduced: Reduced
    by: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A value to order by; missing values and NaN come last either way."""

    value: Value
    is_descending: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Order the rows by these, and then by the order they were in."""

    keys: tuple[OrderKey, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many rows of the order; from its end where `is_last`."""

    count: int
    is_last: bool = False


Stage = Filter | Select | Aggregate | Across | Order | Limit
"""What becomes of the rows, one after the other; `top n by x` is an Order and a Limit, `first` a Limit of 1."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A query that can be executed.

    Attributes:
        source: Where its rows come from.
        stages: What becomes of them, in the order of the text.
        entity: What its rows are before they are grouped.
    """

    source: Source
    stages: tuple[Stage, ...]
    entity: Entity
