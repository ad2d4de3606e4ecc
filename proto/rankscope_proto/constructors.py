"""Constructors of fields that many sections share, so that one idea has one range and one meaning."""

from rankscope_proto import names
from rankscope_proto.declaration import Field, Wire

TIME_LOW = 946_684_800_000_000_000
"""2000-01-01T00:00:00Z in ns since the epoch: the earliest time accepted."""

TIME_HIGH = 7_258_118_400_000_000_000
"""2200-01-01T00:00:00Z in ns since the epoch: the first time not accepted."""

MAX_INT64 = 2**63 - 1
"""Greatest value of a column of type Int64."""

MAX_SEQ = 2**53 - 1
"""Greatest number of a batch: the broker's scripts count in doubles, exact up to 2^53 (2^53 + 1 was taken for 2^53)."""


def time(name: str, number: int, meaning: str, /, *, optional: int | None = None) -> Field:
    """A moment: wall clock in ns since 1970-01-01 UTC, within [TIME_LOW, TIME_HIGH)."""
    return Field(
        name,
        number,
        Wire.SFIXED64,
        "Int64",
        meaning,
        unit="ns since 1970-01-01 UTC",
        low=TIME_LOW,
        high=TIME_HIGH - 1,
        optional=optional,
    )


def word(name: str, number: int, meaning: str, /, *, table: str = "LowCardinality(String)") -> Field:
    """A text that repeats: an index into the dictionary on the wire, LowCardinality in the table."""
    return Field(name, number, Wire.DICT, table, meaning)


def words(
    name: str,
    number: int,
    count: str,
    meaning: str,
    /,
    *,
    table: str = "Array(LowCardinality(String))",
) -> Field:
    """A list of texts per row, sliced by the field named `count`."""
    return Field(name, number, Wire.DICT, table, meaning, count=count)


def code(name: str, number: int, vocabulary: type[names.Code], meaning: str, /) -> Field:
    """A word of a closed vocabulary, by its code; newer codes pass."""
    return Field(name, number, Wire.UINT32, "UInt8", meaning, low=0, high=255, vocabulary=vocabulary)


def flags(number: int, bits: dict[str, int]) -> Field:
    """A set of bits; `bits` maps each name to its power of two."""
    words = ", ".join(f"{bit} {name}" for name, bit in bits.items())
    return Field("flags", number, Wire.UINT32, "UInt32", f"Bit set: {words}.", low=0, high=2**32 - 1)


def count(name: str, number: int, of: str, /) -> Field:
    """The number of elements each row has in the fields that name this one."""
    return Field(name, number, Wire.COUNT, "", f"Number of {of} in the row.", low=0)


def step(number: int, optional: int) -> Field:
    """The training step or episode a row belongs to, absent where it belongs to none."""
    return Field(
        "step",
        number,
        Wire.INT64,
        "Int64",
        "Optimizer step, or episode.",
        low=0,
        high=MAX_INT64,
        optional=optional,
    )


def microstep(number: int) -> Field:
    """The gradient-accumulation index inside the step."""
    return Field(
        "microstep",
        number,
        Wire.UINT32,
        "UInt32",
        "Gradient-accumulation index inside the step.",
        low=0,
        high=2**32 - 1,
    )


def microbatch(number: int, optional: int) -> Field:
    """The pipeline's microbatch, absent where there is no pipeline."""
    return Field(
        "microbatch",
        number,
        Wire.UINT32,
        "UInt32",
        "Pipeline microbatch.",
        low=0,
        high=2**32 - 1,
        optional=optional,
    )


def layer_index(number: int, optional: int) -> Field:
    """The number of the nearest enclosing repeated block, absent outside one."""
    return Field(
        "layer_index",
        number,
        Wire.UINT32,
        "UInt32",
        "Number of the nearest enclosing repeated block.",
        low=0,
        high=2**32 - 1,
        optional=optional,
    )


def present(number: int) -> Field:
    """The row's mask of optional fields."""
    return Field(
        "present",
        number,
        Wire.PRESENT,
        "",
        "Bit i set: the row has the optional field of bit i. Absent: all set.",
    )


def statistic(name: str, number: int, bit: int, meaning: str, /, *, wire: Wire = Wire.FLOAT, unit: str = "") -> Field:
    """One figure of a tensor, absent where the level does not compute it."""
    table = {
        Wire.FLOAT: "Float32",
        Wire.DOUBLE: "Float64",
        Wire.UINT64: "UInt64",
        Wire.FIXED64: "UInt64",
    }[wire]
    return Field(name, number, wire, table, meaning, unit=unit, optional=bit)
